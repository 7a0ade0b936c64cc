"""``localspec tune`` as a command, and the runs that start from what it found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from localspec.cli import tune as command
from localspec.cli.tuned import file_for
from localspec.control import CostCurve
from localspec.errors import ExitCode
from localspec.options import COMMANDS
from localspec.options.tuned import Tuned, folder, write
from localspec.tools.tune.costs import Costs
from localspec.tools.tune.study import Study
from tests.cli.support import Done, error_line, run
from tests.support.gguf_files import TinyModel, TokenizerKeys
from tests.support.rpc import rpc_servers
from tests.tools.test_tune import write_model

FAKE = "tests.tools.fake_main"
PROMPTS = """{"prompt": "Repeat: the rain in Spain stays mainly in the plain. The rain in Spain", "category": "edit"}
{"prompt": "Say hello.", "category": "chat"}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two models and prompts, where state and an empty cache of models are kept, too."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    write_model(tmp_path / "big.gguf", size=500_000)
    write_model(tmp_path / "small.gguf", size=50_000)
    (tmp_path / "p.jsonl").write_text(PROMPTS)
    return tmp_path


def tuned(home: Path, *arguments: str, module: str = FAKE) -> Done:
    given = ("--prompts", str(home / "p.jsonl"), "--seconds", "1", "-n", "8", *arguments)
    return run("tune", *given, module=module, env={"XDG_STATE_HOME": str(home)})


def settings(home: Path, *arguments: str, name: str = "complete") -> dict[str, str]:
    """Key → its line, of those that were tuned."""
    done = run(name, "--print-config", *arguments, env={"XDG_STATE_HOME": str(home)})
    assert (done.returncode, done.stderr) == (0, b""), done
    lines = [line for line in done.stdout.decode().splitlines() if line.endswith("  # tuned")]
    return {line.split(" = ")[0]: line.split(" = ")[1].split("  ")[0].strip() for line in lines}


# Tuning


def test_a_pair_over_engines_without_weights(home: Path) -> None:
    done = tuned(home, "-m", str(home / "big.gguf"), "-md", str(home / "small.gguf"))
    assert done.returncode == 0, done
    title, blank, head, *lines = done.stdout.decode().splitlines()
    assert title.startswith("`big.gguf`: ")
    assert (blank, head.split()) == ("", ["who", "guesses", "draft", "model", "speed-up", "tok/s", "prompts"])
    ranked = lines[: lines.index("")]
    assert [line.split(".")[0].strip() for line in ranked] == [str(i) for i in range(1, 9)]
    why = [line for line in lines[len(ranked) + 1 :] if line.startswith("- ")]
    assert 3 <= len(why) <= 12
    assert why[-2].startswith("- without a draft model: ")
    assert why[-1].startswith("- with -md small.gguf: ")
    assert "differ" not in done.stdout.decode()
    (said,) = done.stderr.decode().splitlines()
    assert said.startswith("localspec: later runs start from this; --no-tuned leaves it out")
    kept = [json.loads(path.read_text()) for path in folder().iterdir()]
    assert {one["about"]["draft"] for one in kept} == {None, str(home / "small.gguf")}


def test_draft_models_beside_the_target_are_found(home: Path) -> None:
    done = tuned(home, "-m", str(home / "big.gguf"), "--json", "--no-save", "--spec-type", "suffix")
    assert (done.returncode, done.stderr) == (0, b""), done
    told = json.loads(done.stdout)
    drafts = {row["draft"] for row in told["ranking"]} | set(told["left_out"])
    assert drafts == {None, str(home / "small.gguf")}
    assert len(told["why"]) <= 10
    assert not folder().exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--spec", "off"], "guesses are off, so there is nothing to tune. Leave --spec off"),
        (
            ["--spec-type", "suffix,tea"],
            "--spec-type tea is not known. Known types: none, draft-simple, draft-eagle, draft-eagle3, draft-dflash",
        ),
        (["--spec-type", "draft-simple"], "--spec-type draft-simple needs a draft model. Give one with -md."),
        (["--spec-type", "none"], "nothing of --spec-type none guesses. Name drafters, or leave it out."),
        (["--seconds", "0.1"], "--seconds 0.1 is out of range. It takes 1 to 86400."),
        (["--models-dir", "nowhere"], "the folder of models nowhere does not exist. Check --models-dir."),
        (["--prompts", "nowhere.jsonl"], "nowhere.jsonl cannot be read: No such file or directory. Check the path"),
    ],
)
def test_what_is_refused(home: Path, arguments: list[str], words: str) -> None:
    done = run("tune", "-m", str(home / "big.gguf"), *arguments, module=FAKE)
    assert words in error_line(done, ExitCode.USAGE)


def test_a_target_that_is_not_there(home: Path) -> None:
    assert "nothing.gguf does not exist" in error_line(run("tune", "-m", str(home / "nothing.gguf")), ExitCode.MODEL)


def test_ctrl_c_shows_how_it_stands_and_keeps_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Study(Costs({}, None, CostCurve({1: 0.01, 2: 0.02})), stopped=True)
    monkeypatch.setattr(command, "study", lambda *_, **__: found)
    values: dict[str, Any] = {option.name: option.default for option in COMMANDS["tune"].options}
    code = command.tune({**values, "model": str(home / "big.gguf"), "prompts": str(home / "p.jsonl")})
    assert code == ExitCode.INTERRUPTED
    assert "Stopped by ctrl-c: this is how it stood." in capsys.readouterr().out
    assert not folder().exists()


def test_ctrl_c_before_anything_was_measured_says_so(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(*_: object, **__: object) -> Study:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "study", stopped)
    values: dict[str, Any] = {option.name: option.default for option in COMMANDS["tune"].options}
    code = command.tune({**values, "model": str(home / "big.gguf"), "prompts": str(home / "p.jsonl")})
    assert code == ExitCode.INTERRUPTED
    assert capsys.readouterr() == ("", "localspec: stopped before anything was measured; nothing kept\n")
    assert not folder().exists()


@pytest.mark.slow
def test_a_real_model(beginning: Path, home: Path) -> None:
    asked = ("-m", str(beginning), "-t", "1", "-c", "512", "--spec-type", "suffix,ngram-simple", "--json")
    done = tuned(home, *asked, module="localspec")
    assert done.returncode == 0, done
    told = json.loads(done.stdout)
    assert {row["setting"] for row in told["ranking"]} == {"suffix", "ngram-simple"}
    assert all(row["equal"] == row["compared"] == row["pairs"] > 0 for row in told["ranking"])
    assert told["plain_tokens_per_second"] > 0
    (file,) = folder().iterdir()
    assert file == file_for(beginning, None)


@pytest.mark.slow
def test_a_server_stands_for_a_device(smol_tokenizer: TokenizerKeys, home: Path) -> None:
    """It is this machine's own processor behind a socket: whatever the plan, it is one that can be loaded."""
    (home / "alone").mkdir()
    model = TinyModel(layers=4).write(home / "alone" / "tiny.gguf", smol_tokenizer)
    asked = ("-m", str(model), "-t", "1", "-c", "512", "--spec-type", "suffix", "--json")
    with rpc_servers(1) as servers:
        done = tuned(home, *asked, "--rpc", *servers, module="localspec")
    assert done.returncode == 0, done
    told = json.loads(done.stdout)
    (choice,) = told["choices"]
    assert choice["settings"].get("gpu-layers", 5) in range(6)
    assert told["why"][-1].startswith(("-ngl ", "-ngl and -ngld: everything fits"))
    assert [row["setting"] for row in told["ranking"]] == ["suffix"]


# What later runs make of it


def test_later_runs_start_from_what_was_found(home: Path) -> None:
    target, draft = home / "big.gguf", home / "small.gguf"
    write(file_for(target, None), Tuned({"spec-type": "lookahead", "threads": 3}, {}))
    write(file_for(target, draft), Tuned({"spec-tree-width": 2}, {}))
    alone = {"spec-type": '"lookahead"', "threads": "3"}
    for name in ("chat", "complete", "bench"):
        assert settings(home, "-m", str(target), name=name) == alone
    assert settings(home, "-m", str(target), "-md", str(draft)) == {"spec-tree-width": "2"}
    assert settings(home, "-m", str(target), "-t", "1") == {"spec-type": '"lookahead"'}
    assert settings(home, "-m", str(target), "--no-tuned") == {}
    assert settings(home, "-m", str(draft)) == {}
    assert settings(home, "-m", str(home / "nothing.gguf")) == {}
    server = ("--server", "http://127.0.0.1:1")
    assert settings(home, *server, name="bench") == {}
    assert settings(home, *server, "-m", str(target), name="bench") == alone
    assert settings(home, "-m", str(target), "--setting", "auto=", name="bench") == {"threads": "3"}


def test_a_copy_is_known_and_a_file_that_changed_is_not(home: Path) -> None:
    target = home / "big.gguf"
    write(file_for(target, None), Tuned({"threads": 3}, {}))
    copy = home / "copy.gguf"
    copy.write_bytes(target.read_bytes())
    assert settings(home, "-m", str(copy)) == {"threads": "3"}
    with target.open("ab") as file:
        file.write(b"more")
    assert settings(home, "-m", str(target)) == {}


def test_another_library_or_machine_is_another_key(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = file_for(home / "big.gguf", None)
    monkeypatch.setattr("localspec.cli.tuned.core_count", lambda: 999)
    assert file_for(home / "big.gguf", None) != before
    monkeypatch.undo()
    monkeypatch.setenv("XDG_STATE_HOME", str(home))
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(home))
    assert file_for(home / "big.gguf", None).name != before.name


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"version": 1, "settings": {"no-such-key": 3}, "about": {}}', "no-such-key is nothing that is tuned"),
        ('{"version": 1, "settings": {"model": "/nope"}, "about": {}}', "model is nothing that is tuned"),
        ('{"version": 99, "settings": {}, "about": {}}', "it is of another version of localspec, or damaged"),
        ("", "it is damaged"),
        (None, "it cannot be read: Is a directory"),
    ],
)
def test_what_cannot_be_used_is_left_out_with_a_line(home: Path, text: str | None, words: str) -> None:
    target = home / "big.gguf"
    file = file_for(target, None)
    file.parent.mkdir(parents=True)
    if text is None:
        file.mkdir()
    else:
        file.write_text(text)
    done = run("complete", "--print-config", "-m", str(target), env={"XDG_STATE_HOME": str(home)})
    assert done.returncode == 0
    (line,) = done.stderr.decode().splitlines()
    assert line == f"localspec: {file} is left out: {words}. Delete it, or run localspec tune again."
    assert "# tuned" not in done.stdout.decode()
