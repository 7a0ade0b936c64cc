"""``localspec verify`` as a command: certificate, lines, exit codes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from localspec import __version__
from localspec.cli.verify import verify
from localspec.errors import ExitCode, UsageError
from localspec.options import COMMANDS
from tests.cli.support import error_line, run
from tests.tools.faults import FAULT

FAKE = "tests.tools.fake_main"
PROMPTS = "Repeat: one two three, one two three, one two\nSay hello.\n"


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    path = tmp_path / "p.txt"
    path.write_text(PROMPTS)
    return str(path)


def test_two_prompts_on_a_real_model(beginning: Path, prompts: str, tmp_path: Path) -> None:
    path = tmp_path / "certificate.json"
    done = run(
        *("verify", "-m", str(beginning), "-t", "1", "-c", "512", "-n", "6", "--prompts", prompts),
        *("--shapes", "chain,tree", "--sampler-sets", "greedy", "--seeds", "0", "-o", str(path)),
    )
    assert (done.returncode, done.stdout) == (0, b""), done
    assert done.stderr.decode().splitlines()[-1] in ("verdict: equal", "verdict: rounding")
    found = json.loads(path.read_text("utf-8"))
    with beginning.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    assert found["models"]["target"]["files"][0]["sha256"] == digest
    assert found["models"]["draft"] is None
    assert {"localspec", "numpy", "python", "llama-cpp-python", "ggml_commit", "system"} <= found["versions"].keys()
    assert found["versions"]["localspec"] == __version__
    assert (found["options"]["n_predict"], found["options"]["threads"]) == (6, 1)
    assert [(one["drafters"], one["shape"]) for one in found["cases"]] == [(["suffix"], "chain"), (["suffix"], "tree")]
    assert all(len(one["prompts"]) == 2 for one in found["cases"])
    assert found["control"]["positions"] > 0


def test_an_exact_engine_may_not_differ_at_all(beginning: Path, prompts: str) -> None:
    done = run(
        *("verify", "-m", str(beginning), "-c", "512", "-n", "8", "--prompts", prompts, "--exact"),
        *("--shapes", "tree", "--sampler-sets", "greedy", "--seeds", "0"),
    )
    assert done.returncode == 0, done
    lines = done.stderr.decode().splitlines()
    assert lines[0].startswith("localspec: --exact: rows are computed 8 at a time, a step without guesses takes ")
    assert lines[-2:] == ["no control: with --exact nothing may differ", "verdict: equal"]


def test_a_sound_engine_and_a_certificate_on_stdout(prompts: str) -> None:
    done = run(
        *("verify", "-m", "a.gguf", "-md", "b.gguf", "--prompts", prompts, "-n", "12", "--seeds", "50", "--json"),
        module=FAKE,
    )
    assert done.returncode == 0, done
    found = json.loads(done.stdout)
    assert found["verdict"] == "equal"
    assert {tuple(one["drafters"]) for one in found["cases"]} == {
        ("suffix",),
        ("draft-simple",),
        ("suffix", "draft-simple"),
    }
    assert [one["rule"] for one in found["acceptance_rules"]] == ["draw", "ratio"]
    lines = done.stderr.decode().splitlines()
    assert lines[0].split() == ["drafter", "shape", "sampler", "same", "tokens", "guesses", "held", "verdict"]
    assert lines[-1] == "verdict: equal"


def test_a_fault_has_an_exit_code_of_its_own(prompts: str, tmp_path: Path) -> None:
    path = tmp_path / "certificate.json"
    done = run(
        *("verify", "-m", "a.gguf", "-md", "b.gguf", "--prompts", prompts, "-n", "12", "--seeds", "0"),
        *("-o", str(path)),
        module=FAKE,
        env={FAULT: "draw"},
    )
    assert done.returncode == ExitCode.FAULT, done
    lines = done.stderr.decode().splitlines()
    assert lines[-2] == "verdict: fault"
    assert lines[-1].startswith("localspec: error: speculation changes texts by more than rounding does. ")
    found = json.loads(path.read_text("utf-8"))
    assert found["verdict"] == "fault"
    differences = [one["difference"] for case in found["cases"] for one in case["prompts"] if one["difference"]]
    assert {"position", "plain_token", "token", "plain_gap", "gap", "moved", "bound"} <= differences[0].keys()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--sampler-sets", "greedy,gredy"], "--sampler-sets gredy is not known"),
        (["--shapes", "star"], "--shapes star is not known"),
        (["--spec", "off"], "guesses are off, so there is nothing to verify. Leave --spec off"),
        (["--spec-draft-n-max", "0"], "guesses are off, so there is nothing to verify"),
        (["--prompts", "nothing.jsonl"], "nothing.jsonl cannot be read"),
        (["--seeds", "-1"], "--seeds -1 is out of range"),
    ],
)
def test_what_is_refused(arguments: list[str], words: str) -> None:
    assert words in error_line(run("verify", "-m", "a.gguf", *arguments, module=FAKE), ExitCode.USAGE)


@pytest.mark.parametrize("exact", [False, True])
def test_without_drafters_no_model_is_loaded(exact: bool, prompts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: object, **__: object) -> None:
        raise AssertionError("a model is loaded")

    monkeypatch.setattr("localspec.cli.verify.engine_here", load)
    values: dict[str, Any] = {option.name: option.default for option in COMMANDS["verify"].options}
    with pytest.raises(UsageError, match="there is nothing that guesses"):
        verify({**values, "model": prompts, "prompts": prompts, "spec_type": "none", "exact": exact})


def test_a_place_that_takes_no_certificate_is_told_at_once(smol: Path, tmp_path: Path) -> None:
    done = run("verify", "-m", str(smol), "-o", str(tmp_path / "nowhere" / "c.json"))
    assert done.returncode == 2
    assert done.stderr.decode().count("\n") == 1
    assert b"c.json cannot be written: No such file or directory" in done.stderr
    assert b"loading" not in done.stderr
