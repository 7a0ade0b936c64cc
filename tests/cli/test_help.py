"""Help and version: where they go and what they cost."""

from __future__ import annotations

import subprocess
import sys

import pytest

from localspec import __version__
from localspec.options import GENERATION_OPTIONS
from tests.cli.support import environment, error_line, run

HEAVY = ("numpy", "torch", "llama_cpp", "textual", "jinja2", "huggingface_hub", "gguf")
COMMANDS = ((), ("complete",), ("chat",))


@pytest.mark.parametrize("flag", ["-h", "--help"])
@pytest.mark.parametrize("command", COMMANDS)
def test_help_goes_to_stdout(command: tuple[str, ...], flag: str) -> None:
    done = run(*command, flag)
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode()
    assert "Usage: localspec" in text
    for option in GENERATION_OPTIONS if command else ():
        assert option.flags[-1] in text


@pytest.mark.parametrize("flag", ["-V", "--version"])
def test_version_goes_to_stdout(flag: str) -> None:
    done = run(flag)
    assert (done.returncode, done.stdout.decode(), done.stderr) == (0, f"localspec {__version__}\n", b"")


@pytest.mark.parametrize("arguments", [("--version",), ("--help",), ("complete", "--help"), ("chat", "-h")])
def test_neither_loads_anything_heavy(arguments: tuple[str, ...]) -> None:
    code = (
        f"import sys; from localspec.cli.main import main; sys.argv[1:] = {arguments!r}\n"
        "try: main()\n"
        f"except SystemExit: print(*(name for name in {HEAVY!r} if name in sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment(), check=True)
    assert done.stdout
    assert done.stderr.strip() == b""


@pytest.mark.parametrize("command", COMMANDS)
def test_help_where_stdout_is_ascii(command: tuple[str, ...]) -> None:
    done = run(*command, "--help", env={"LANG": "C", "LC_ALL": "C", "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, b"")
    assert "Usage: localspec" in done.stdout.decode()


def test_no_command_is_an_error() -> None:
    assert error_line(run(), 2) == "localspec: error: Missing command. See localspec --help."
