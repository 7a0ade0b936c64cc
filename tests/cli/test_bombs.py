"""A model's file is a stranger's: what its chat template tries is refused in one line, and nothing of it is done."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from localspec.errors import ExitCode
from tests.cli.support import PLAIN, command, environment, error_line, run
from tests.support.gguf_files import TinyModel, TokenizerKeys

#: Template → what is said of it. ``ESCAPED`` is the path of a file that nobody may make.
BOMBS = {
    "loops": (
        "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
        "was stopped: it takes longer than 1.5 s",
    ),
    "text": ("{{ 'a' * 500000000 }}", "was stopped: "),
    "output": ("{% for i in range(100000) %}{{ 'abcdefgh' * 700 }}{% endfor %}", "was stopped: "),
    "escape": ("{{ cycler.__init__.__globals__.os.system('touch ESCAPED') }}", ""),
    "import": ("{% import 'os' as os %}{{ os.system('touch ESCAPED') }}", ""),
    "open": ("{{ ''.__class__.__mro__[1].__subclasses__() }}", ""),
    "syntax": ("{% for message in messages %}", ""),
}
COMMANDS = {
    "complete": ("complete", "-cnv", "-p", "hello", "-n", "2"),
    "chat": ("chat", "-st", "-p", "hello", "-n", "2"),
}
#: Both commands read templates in one way; a kind of each is enough to see that the chat does.
TRIED = [*((name, "complete") for name in BOMBS), ("loops", "chat"), ("escape", "chat")]


def aimed(template: str, folder: Path) -> str:
    return template.replace("ESCAPED", str(folder / "ESCAPED"))


@pytest.fixture(scope="module")
def hostile(smol_tokenizer: TokenizerKeys, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model for each bomb."""
    folder, tokenizer = tmp_path_factory.mktemp("hostile"), smol_tokenizer.first(2000)
    for name, (template, _) in BOMBS.items():
        TinyModel(template=aimed(template, folder)).write(folder / f"{name}.gguf", tokenizer)
    return folder


@pytest.mark.parametrize(("name", "way"), TRIED)
def test_a_template_in_a_file_does_no_harm(name: str, way: str, hostile: Path) -> None:
    done = run(*COMMANDS[way], "-m", str(hostile / f"{name}.gguf"), *PLAIN)
    line = error_line(done, ExitCode.MODEL)
    assert f"{name}.gguf" in line
    assert BOMBS[name][1] in line
    assert not (hostile / "ESCAPED").exists()


def test_an_escape_could_be_seen(hostile: Path) -> None:
    """What the test above rests on: outside of the sandbox the same template does what it says."""
    code = "import jinja2, sys; jinja2.Template(sys.argv[1]).render(messages=[])"
    made = hostile / "ESCAPED"
    subprocess.run([sys.executable, "-c", code, aimed(BOMBS["escape"][0], hostile)], check=True)
    assert made.exists()
    made.unlink()


@pytest.mark.parametrize("way", COMMANDS)
def test_memory_stays_in_bounds(way: str, hostile: Path) -> None:
    """500 MB of text are not made: the command takes no more memory than where the template makes no text."""

    def peak(name: str) -> int:
        """Of the largest process, in kB."""
        script = (
            "import resource, subprocess, sys; subprocess.run(sys.argv[1:], capture_output=True);"
            "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
        )
        ours = command(*COMMANDS[way], "-m", str(hostile / f"{name}.gguf"), *PLAIN)
        done = subprocess.run(
            [sys.executable, "-c", script, *ours], capture_output=True, env=environment(), timeout=100, check=True
        )
        return int(done.stdout)

    assert peak("text") - peak("escape") < 250_000
