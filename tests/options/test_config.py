"""Configuration files: what is read from them, and what is refused by name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from localspec.errors import UsageError
from localspec.options import config
from localspec.options.origin import Level
from tests.options.sources import Sources


def value(sources: Sources, text: str, name: str, *arguments: str) -> Any:
    sources.user.write_text(text, encoding="utf-8")
    return sources.settle(arguments).values[name]


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("ctx-size = 4096", "ctx_size", 4096),
        ("ctx_size = 4096", "ctx_size", 4096),
        ('"ctx-size" = 4096', "ctx_size", 4096),
        ("n-predict = 5", "n_predict", 5),  # an alias
        ("draft-max = 5", "draft_n_max", 5),  # an old name
        ("speculative-num-draft-tokens = 8", "tree_nodes", 7),  # counts the root
        ('speculative_algorithm = "Eagle-2"', "spec_type", "draft-eagle"),
        ("temp = 1", "temp", 1.0),
        ("no-mmap = true", "mmap", False),
        ("no-mmap = false", "mmap", True),
        ("flash-attn = true", "flash_attn", "on"),
        ('flash-attn = "off"', "flash_attn", "off"),
        ("gpu-layers = 12", "gpu_layers", "12"),
        ('gpu-layers = "all"', "gpu_layers", "all"),
        ('stop = "a,b"', "stop", ("a,b",)),
        ('stop = ["a", "b\\n"]', "stop", ("a", "b\n")),
        ("stop = []", "stop", ()),
        ('device = ["A", "B"]', "device", "A,B"),
        ("tensor-split = [3, 1.5]", "tensor_split", "3,1.5"),
        ('samplers = ["top_k", "temperature"]', "samplers", "top_k;temperature"),
        ('model = "~/m.gguf"', "model", os.path.expanduser("~/m.gguf")),
        ('lora = ["~/a.gguf"]', "lora", (os.path.expanduser("~/a.gguf"),)),
        ('system-prompt = "~ né"', "system", "~ né"),
        ("\ufefftemp = 0.5", "temp", 0.5),
        ("# nothing", "temp", 0.8),
        ("single-turn = true", "temp", 0.8),  # of another command
    ],
)
def test_values_are_read(text: str, name: str, expected: Any, sources: Sources) -> None:
    got = value(sources, text, name)
    assert (got, type(got)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('speculative-algorithm = "x"', ['speculative-algorithm = "x" in', "not possible", "user.toml", "EAGLE3"]),
        ("tempp = 1", ["unknown key tempp", "user.toml", "Did you mean temp?"]),
        ("ctx_sise = 1", ["unknown key ctx_sise", "Did you mean ctx-size?"]),
        ("zzzzzz = 1", ["unknown key zzzzzz", "localspec help flags"]),
        ("[sampling]\ntemp = 1", ["unknown key sampling", "user.toml"]),
        ("c = 1", ["unknown key c"]),
        ('temp = "warm"', ['temp = "warm" in ', "user.toml", "not a number"]),
        ("temp = true", ["temp = true in ", "not a number"]),
        ("temp = nan", ["temp = NaN in ", "out of range"]),
        ("top-p = 1.5", ["top-p = 1.5 in ", "out of range", "0 to 1"]),
        ("ctx-size = 1.5", ["ctx-size = 1.5 in ", "not an integer"]),
        ("ctx-size = true", ["not an integer"]),
        ("ctx-size = -1", ["ctx-size = -1 in ", "0 to"]),
        ("ignore-eos = 1", ["ignore-eos = 1 in ", "not true or false"]),
        ('ignore-eos = "on"', ["not true or false"]),
        ("model = 3", ["model = 3 in ", "not a text"]),
        ("stop = [1]", ["stop = 1 in ", "not a text"]),
        ('flash-attn = "maybe"', ['flash-attn = "maybe" in ', "on, off, auto"]),
        ("flash-attn = 1", ["not a text"]),
        ("temp = [1]", ["temp = [1] in ", "not a number"]),
        ("temp = 1979-05-27", ["not a number"]),
        ("temp = 1\ntemperature = 2", ["temp and temperature in ", "one option"]),
        ("mmap = true\nno-mmap = true", ["mmap and no-mmap in "]),
        ('config = "x"', ["config is no key of ", "--config as a flag"]),
        ("print-config = true", ["print-config is no key of "]),
        ("debug = true", ["debug is no key of "]),
        ("profile = 1", ["profile in ", "table of tables"]),
        ("[profile]\nx = 1", ["profile in ", "table of tables"]),
        ("temp = ", ["user.toml is not TOML", "Invalid value", "localspec help config"]),
        ("temp = 1\ntemp = 2", ["user.toml is not TOML"]),
    ],
)
def test_what_is_wrong_is_named(text: str, words: list[str], sources: Sources) -> None:
    with pytest.raises(UsageError) as caught:
        value(sources, text, "temp")
    line = f"{caught.value.message}. {caught.value.hint}"
    assert [word for word in words if word not in line] == [], line


def test_files_that_cannot_be_read(sources: Sources, tmp_path: Path) -> None:
    sources.user.write_bytes(b"temp = 1 # \xff")
    with pytest.raises(UsageError, match=r"not UTF-8 text \(byte 11\)"):
        sources.settle()
    for name, words in ((tmp_path / "none.toml", "No such file"), (tmp_path, "directory")):
        with pytest.raises(UsageError, match=words):
            sources.settle(["--config", str(name)])
    sources.user = tmp_path  # the usual name, but a folder
    with pytest.raises(UsageError, match="directory"):
        sources.settle()
    sources.user = tmp_path / ("x" * 300)
    with pytest.raises(UsageError, match="File name too long"):
        sources.settle()


def test_a_named_file_is_read_in_place_of_both(sources: Sources, tmp_path: Path) -> None:
    sources.system.write_text("top-k = 1\ntemp = 0.1")
    sources.user.write_text("top-p = 0.5\ntemp = 0.2")
    named = tmp_path / "a name.toml"
    named.write_text("temp = 0.3")
    for arguments, env in ((["--config", str(named)], {}), ([], {"LOCALSPEC_CONFIG": str(named)})):
        values = sources.settle(arguments, env).values
        assert (values["temp"], values["top_k"], values["top_p"]) == (0.3, 40, 0.95)
    assert sources.settle(["--config", str(named)], {"LOCALSPEC_CONFIG": "/no/such"}).values["temp"] == 0.3
    assert sources.settle([], {"LOCALSPEC_CONFIG": os.devnull}).values["temp"] == 0.8


# Profiles


def test_profiles(sources: Sources) -> None:
    sources.user.write_text("temp = 0.1\n[profile.cold]\ntemp = 0\n[profile.'né d']\ntemp = 2\n[profile.empty]")
    for name, temp in (("cold", 0.0), ("né d", 2.0), ("empty", 0.1)):
        assert sources.settle(["--profile", name]).values["temp"] == temp
        assert sources.settle([], {"LOCALSPEC_PROFILE": name}).values["temp"] == temp
    assert sources.settle().values["temp"] == 0.1
    got = sources.settle(["--profile", "cold"], {"LOCALSPEC_PROFILE": "none"})
    assert got.origins["temp"].level is Level.USER_PROFILE


def test_a_profile_may_be_in_one_of_the_files(sources: Sources) -> None:
    sources.system.write_text("[profile.a]\ntemp = 0.5")
    sources.user.write_text("[profile.b]\ntemp = 0.6")
    assert sources.settle(["--profile", "a"]).values["temp"] == 0.5
    assert sources.settle(["--profile", "b"]).values["temp"] == 0.6


def test_keys_of_the_screen_are_a_table_of_their_own(sources: Sources) -> None:
    assert config.keymap(None) == {}
    sources.system.write_text('[keys]\nhelp = "f8"\nstop = "f7"')
    sources.user.write_text('temp = 0.5\n[keys]\nhelp = "f1,f12"')
    assert config.keymap(None) == {"help": "f1,f12", "stop": "f7"}
    assert sources.settle().values["temp"] == 0.5
    for wrong in ("keys = 1", "[keys]\nhelp = 1", '[keys]\nhelp = ""'):
        sources.user.write_text(wrong)
        with pytest.raises(UsageError, match="is not a table of keys"):
            config.keymap(None)


def test_unknown_profiles(sources: Sources) -> None:
    with pytest.raises(UsageError, match="there is no configuration file"):
        sources.settle(["--profile", "a"])
    sources.user.write_text("temp = 1")
    with pytest.raises(UsageError, match=r"\[profile.a\] is not in .*user.toml") as caught:
        sources.settle(["--profile", "a"])
    assert caught.value.hint == "They have no profiles."
    sources.user.write_text("[profile.cold]\n[profile.warm]")
    with pytest.raises(UsageError) as caught:
        sources.settle(["--profile", "colt"])
    assert caught.value.hint == "Did you mean cold? There are: cold, warm."


def test_keys_of_a_profile_are_checked_when_it_is_used(sources: Sources) -> None:
    sources.user.write_text("[profile.a]\ntempp = 1\n[profile.b]\ntemp = 1")
    assert sources.settle(["--profile", "b"]).values["temp"] == 1.0
    with pytest.raises(UsageError, match=r"unknown key tempp in .*user.toml \[profile.a\]"):
        sources.settle(["--profile", "a"])


def test_where_the_files_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert config.user_file() == tmp_path / "localspec" / "config.toml"
    assert config.system_file() == Path("/etc/localspec/config.toml")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("temp = 1" + "0" * 400, "temp = Infinity in"),
        ("temp = 1" + "0" * 5000, "is not TOML"),
        ("top-k = 0x1" + "0" * 5000, "is not an integer"),
        ("stop = " + "[" * 5000, "is not TOML"),
    ],
)
def test_what_has_no_end_is_one_clear_error(sources: Sources, text: str, says: str) -> None:
    sources.user.write_text(text)
    with pytest.raises(UsageError, match=says):
        sources.settle([])


@pytest.mark.parametrize(("word", "on"), [("YES", True), ("1", True), ("no", False)])
def test_words_for_on_that_other_programs_use(sources: Sources, word: str, on: bool) -> None:
    assert sources.settle([], {"HF_HUB_OFFLINE": word}).values["offline"] is on
