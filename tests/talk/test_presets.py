"""Named sets of settings."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from localspec.errors import LocalspecError, UsageError
from localspec.talk import settings
from localspec.talk.completion import completions
from localspec.talk.presets import Presets
from tests.cli.repl.support import chat, loads, repl


@pytest.fixture
def presets(tmp_path: Path) -> Presets:
    return Presets(tmp_path / "new" / "presets")


def test_what_is_kept_comes_back(presets: Presets) -> None:
    one = chat(temp=0.2, stop=("a b", '"\n'), spec="off", ignore_eos=True, n_predict=-1)
    path = presets.save(one, "dry-run")
    assert tomllib.loads(path.read_text("utf-8")) == {
        "stop": ["a b", '"\n'],
        "spec": "off",
        "temp": 0.2,
        "ignore-eos": True,
    }
    other = chat(top_k=3, temp=0.8, ignore_eos=False, n_predict=-1)
    assert presets.load(other, "dry-run") == [
        """stop (none) -> 'a b' '" '""",
        "spec fixed -> off",
        "temp 0.8 -> 0.2",
        "top-k 3 -> 40",
        "ignore-eos off -> on",
    ]
    assert {name: other.values[name] for name in ("temp", "stop", "spec", "top_k", "ignore_eos")} == {
        "temp": 0.2,
        "stop": ("a b", '"\n'),
        "spec": "off",
        "top_k": 40,
        "ignore_eos": True,
    }
    assert loads(other).loads == []


def test_one_preset_after_another_is_the_last_one(presets: Presets) -> None:
    presets.save(chat(temp=1.5), "hot")
    presets.save(chat(top_k=5, temp=0.8), "narrow")
    one = chat()
    presets.load(one, "hot")
    presets.load(one, "narrow")
    assert (one.values["temp"], one.values["top_k"]) == (0.8, 5)


def test_names_are_listed_and_deleted(presets: Presets) -> None:
    assert presets.names() == ()
    for name in ("b", "a"):
        presets.save(chat(), name)
    (presets.folder / "no preset.toml").touch()
    (presets.folder / "c.txt").touch()
    assert presets.names() == ("a", "b")
    presets.delete("a")
    assert presets.names() == ("b",)


@pytest.mark.parametrize("name", ["", "../x", "a b", "save", "delete", ".a", "a.toml", "é", "x" * 41, "a\x1b[31m"])
def test_names_that_are_none(presets: Presets, name: str) -> None:
    for action in (lambda: presets.save(chat(), name), lambda: presets.load(chat(), name)):
        with pytest.raises(UsageError, match="is no name for a preset") as raised:
            action()
        assert raised.value.message.isprintable()
    assert not presets.folder.exists()


def test_a_preset_that_is_not_there(presets: Presets) -> None:
    with pytest.raises(UsageError, match="there is no preset creative") as raised:
        presets.load(chat(), "creative")
    assert raised.value.hint == "Save one with /preset save NAME."
    presets.save(chat(), "creativ")
    with pytest.raises(UsageError) as raised:
        presets.delete("creative")
    assert raised.value.hint == "Did you mean creativ? There are creativ."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tmp = 0.3", "unknown key tmp in .*a.toml"),
        ("ctx-size = 4096", "unknown key ctx-size in"),
        ("temp = 'warm'", 'temp = "warm" in .* is not a number'),
        ("top-p = 7", "top-p = 7.0 in .* is out of range"),
        ("temp = ", "is not TOML"),
        ("spec-draft-n-min = 99", "spec-draft-n-min is more than"),
        ("samplers = 'nonsense'", "nonsense"),
    ],
)
def test_files_that_say_what_cannot_be_set_change_nothing(presets: Presets, text: str, message: str) -> None:
    presets.folder.mkdir(parents=True)
    (presets.folder / "a.toml").write_text(f"top-k = 3\n{text}\n")
    one = chat()
    before = dict(one.values)
    with pytest.raises(UsageError, match=message):
        presets.load(one, "a")
    assert one.values == before


def test_other_spellings_of_a_key(presets: Presets) -> None:
    presets.folder.mkdir(parents=True)
    (presets.folder / "a.toml").write_text("temperature = 0.1\nn_predict = 9\n")
    one = chat()
    presets.load(one, "a")
    assert (one.values["temp"], one.values["n_predict"]) == (0.1, 9)


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "presets").write_text("")
    broken = Presets(tmp_path / "presets")
    assert broken.names() == ()
    with pytest.raises(LocalspecError, match="cannot be written"):
        broken.save(chat(), "a")


def test_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    one = chat(temp=0.3)

    def said(line: str) -> str:
        repl(one).take(line)
        return capsys.readouterr().err.strip()

    assert said("/preset") == "there are no presets; /preset save NAME keeps the settings of now"
    assert said("/preset save cool").startswith("saved in ")
    assert (tmp_path / "localspec" / "presets" / "cool.toml").exists()
    settings.change(one, "temp", "1.2")
    assert said("/preset cool") == "temp 1.2 -> 0.3"
    assert said("/preset cool") == "that changes nothing"
    assert said("/preset") == "cool"
    assert [found.text for found in completions("/preset ", one)] == ["cool", "save", "delete"]
    assert [found.text for found in completions("/preset delete c", one)] == ["cool"]
    assert said("/preset delete cool") == "the preset cool is gone"
    assert "Use" in said("/preset save a b")
    assert "needs a name" in said("/preset delete")
    assert "there is no preset cool" in said("/preset cool")


def test_a_file_without_permission(presets: Presets) -> None:
    presets.save(chat(), "a")
    if os.access(presets.folder, os.W_OK) and os.getuid() == 0:
        pytest.skip("root may do everything")
    presets.folder.chmod(0o500)
    with pytest.raises(LocalspecError, match="cannot be removed"):
        presets.delete("a")
