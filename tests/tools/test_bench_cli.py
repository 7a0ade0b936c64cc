"""``localspec bench`` as a command."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from localspec.errors import ExitCode
from tests.cli.support import error_line, run

FAKE = "tests.tools.fake_main"
PROMPTS = """{"prompt": "Repeat: the rain in Spain stays mainly in the plain. The rain in Spain", "category": "edit"}
{"prompt": "Say hello.", "category": "chat"}
"""


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    path = tmp_path / "p.jsonl"
    path.write_text(PROMPTS)
    return str(path)


def test_two_prompts_on_a_real_model(beginning: Path, prompts: str) -> None:
    done = run(
        *("bench", "-m", str(beginning), "-t", "1", "-c", "512", "-n", "8", "-r", "2", "--prompts", prompts),
        *("--setting", "chain=--spec fixed --spec-tree-nodes 4", "--json"),
    )
    assert (done.returncode, done.stderr) == (0, b""), done
    data = json.loads(done.stdout)
    (setting,) = data["settings"]
    assert (setting["setting"], setting["overall"]["equal"], setting["overall"]["compared"]) == ("chain", 4, 4)
    assert setting["overall"]["ratio"]["low"] <= setting["overall"]["ratio"]["median"]
    assert set(setting["categories"]) == {"edit", "chat"}
    assert sum(setting["time_shares"].values()) == pytest.approx(1)
    assert setting["oracle"] > 0
    assert list(data["pass_ms"]) == ["1", "2", "3", "4"]
    assert data["peak_memory_bytes"] > 10**7
    assert [pair["tokens"] for pair in setting["pairs"]] == [8] * 4


def test_a_grid_over_an_engine_without_weights(prompts: str) -> None:
    """The fake is exact to the bit, so that every answer is the plain one."""
    settings = ("--setting", "auto=", "--setting", "chain of=--spec fixed --spec-draft-n-max 2,4")
    done = run(
        "bench", "-m", "a.gguf", "-md", "b.gguf", "--prompts", prompts, "-n", "24", "-r", "2", *settings, module=FAKE
    )
    assert (done.returncode, done.stderr) == (0, b""), done
    lines = done.stdout.decode().splitlines()
    assert lines[0].startswith("`FakeTarget`: 2 rounds of 2 prompts, 24 tokens each; ")
    assert lines[2] == "|  | edit | chat | all | same text |"
    assert [line.split(" | ")[0] for line in lines[4:8]] == ["| plain", "| auto", "| chain of 2", "| chain of 4"]
    assert all(line.endswith("| 4/4 |") for line in lines[5:8])


@pytest.mark.parametrize("form", ["table", "csv"])
def test_other_forms(form: str, prompts: str) -> None:
    done = run(
        *("bench", "-m", "a.gguf", "--prompts", prompts, "-n", "8", "-r", "5", "--budget", "0", "-o", form),
        module=FAKE,
    )
    assert (done.returncode, done.stderr) == (0, b""), done
    if form == "csv":
        rows = list(csv.DictReader(io.StringIO(done.stdout.decode())))
        assert [(row["category"], row["pairs"]) for row in rows] == [("edit", "2"), ("chat", "2"), ("all", "4")]
    else:
        assert "suffix, auto  █" in done.stdout.decode()
        assert "Only 2 of 5 rounds: the budget of 0 seconds allows no more." in done.stdout.decode()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-m", "a.gguf", "--prompts", "nothing.jsonl"], "nothing.jsonl cannot be read"),
        (["-m", "a.gguf", "--setting", "a=--temp 3"], "--setting a: no such option: --temp"),
        (
            ["-m", "a.gguf", "--setting", "a=--bogus 1"],
            "--setting a: no such option: --bogus. See localspec bench --help.",
        ),
        (["-m", "a.gguf", "--setting", "suffix"], "--setting suffix has no flags. Write NAME=FLAGS, or 'suffix='"),
        (["--server", "not a url"], "'not a url' is not the URL of a server. Give one such as http://127.0.0.1:8080."),
        (["--server-baseline", "a=127.0.0.1:8080"], "'127.0.0.1:8080' is not the URL of a server"),
        (["--server-model", "x"], "--server-model is given without --server"),
        (["--server", "a=http://127.0.0.1:1", "--server", "a=http://127.0.0.1:2"], "two settings are named a"),
        (["--json", "-o", "csv"], "--json and -o are given together"),
        (["-r", "1"], "--repetitions 1 is out of range"),
    ],
)
def test_what_is_refused(arguments: list[str], words: str) -> None:
    assert words in error_line(run("bench", *arguments, module=FAKE), ExitCode.USAGE)
