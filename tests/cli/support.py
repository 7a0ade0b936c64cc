"""Runs of the command line, piped and at a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import subprocess
import sys
import tempfile
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.support.forks import Fork, can_fork, finished, forked

ROOT = Path(__file__).resolve().parents[2]
LOCALSPEC, FAKE = "localspec", "tests.cli.fake_main"
#: For what is only waited for: models without weights that are slow otherwise (tests/cli/factories.py).
HURRY = {"LOCALSPEC_TEST_PASS_TIME": "0"}
#: Quick and the same on every machine.
PLAIN = ("-t", "1", "--temp", "0", "-s", "1")
#: And no passes measured when a model with weights is loaded, for what has nothing to do with guesses.
ALONE = (*PLAIN, "--spec-type", "none")

#: A command takes at most.
SECONDS = 100.0

Done = subprocess.CompletedProcess[bytes]


def command(*arguments: str, module: str = LOCALSPEC) -> list[str]:
    return [sys.executable, "-m", module, *arguments]


def environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    # Neither the user's history nor the user's conversations; processes at a time have each their own.
    place = os.path.join(tempfile.gettempdir(), f"localspec-tests-{os.getuid()}")
    # The clipboard of whoever runs the tests is left alone: over ssh it is the terminal's.
    own = {"SSH_TTY": "away", "XDG_STATE_HOME": place, "XDG_DATA_HOME": os.path.join(place, str(os.getpid()))}
    return {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", **own, **(changes or {})}


def run(*arguments: str, module: str = LOCALSPEC, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Done:
    """The finished command; its standard input is a pipe with ``stdin``."""
    env = environment({**HURRY, **(env or {})})
    line = command(*arguments, module=module)
    if not can_fork(env):
        return subprocess.run(line, input=stdin, capture_output=True, env=env, timeout=SECONDS)
    return Done(line, *finished(module, arguments, stdin, env, SECONDS))


def shell(script: str, *arguments: str, module: str = LOCALSPEC, env: Mapping[str, str] | None = None) -> Done:
    """Runs ``script`` in bash, where ``"$@"`` is the command."""
    return subprocess.run(
        ["bash", "-c", script, "bash", *command(*arguments, module=module)],
        capture_output=True,
        env=environment(env),
        timeout=100,
    )


def error_line(done: Done, code: int) -> str:
    """The one line of an error; checks that there is nothing else."""
    lines = done.stderr.decode().splitlines()
    assert (done.returncode, done.stdout, len(lines)) == (code, b"", 1), done
    what, hint = lines[0].removeprefix("localspec: error: ").split(". ", 1)
    assert lines[0].startswith("localspec: error: ")
    assert what
    assert hint.endswith(".")
    return lines[0]


def children(pid: int) -> list[int]:
    """Processes that the main thread of ``pid`` has started and that live."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


#: Sent when a line was taken; and when the prompt is there and keys are read.
TAKEN = b"\x1b[?2004l"
READY = re.compile(rb"\x1b\[\?2004h(\x1b\[\?1l)?\x1b\[\?25l")


def plain(screen: bytes) -> str:
    """What was written to a terminal, without escape sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.decode())


def _at_terminal(
    line: int, stdout: int, module: str, arguments: Sequence[str], env: Mapping[str, str]
) -> Fork | subprocess.Popen[bytes]:
    if can_fork(env):
        return forked(module, arguments, (line, stdout, line), env, session=True)
    return subprocess.Popen(
        command(*arguments, module=module),
        stdin=line,
        stdout=stdout,
        stderr=line,
        env=env,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(line, termios.TIOCSCTTY, 0),
    )


class Terminal:
    """The command at a terminal of its own; ``stdout`` may be a file instead.

    Attributes:
        untouched: the settings of the line before the command.
        written: everything that was read so far.
    """

    def __init__(
        self,
        *arguments: str,
        module: str = LOCALSPEC,
        stdout: int | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._line, theirs = pty.openpty()
        self.name = os.ttyname(theirs)
        self.untouched = self.modes()
        self.written = b""
        self.process = _at_terminal(theirs, theirs if stdout is None else stdout, module, arguments, environment(env))
        os.close(theirs)
        self._seen = b""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._line)

    def send(self, keys: bytes) -> None:
        os.write(self._line, keys)

    def until(self, text: bytes) -> bytes:
        """Everything up to and with ``text``, after what was returned before."""
        while text not in self._seen:
            more = self._more()
            assert more, f"the end came before {text!r}: {self._seen!r}"
            self._seen += more
        end = self._seen.index(text) + len(text)
        seen, self._seen = self._seen[:end], self._seen[end:]
        return seen

    def prompt(self) -> bytes:
        """Everything up to the prompt; returns when keys are read there."""
        while (found := READY.search(self._seen)) is None:
            self._seen += self._more() or pytest.fail(f"the end came before the prompt: {self._seen!r}")
        seen, self._seen = self._seen[: found.end()], self._seen[found.end() :]
        return seen

    def hang_up(self) -> None:
        """The terminal is gone, as when its window is closed."""
        os.close(self._line)
        self._line = os.open(os.devnull, os.O_RDWR)

    def modes(self) -> list[object]:
        """The settings of the line: echo, signals, …"""
        return termios.tcgetattr(self._line)

    def end(self) -> tuple[int, bytes]:
        """Exit code and what was left to read."""
        rest = self._seen
        while more := self._more():
            rest += more
        return self.process.wait(30), rest

    def _more(self) -> bytes:
        ready, _, _ = select.select([self._line], [], [], 60)
        assert ready, f"nothing more comes after {self._seen!r}"
        try:
            more = os.read(self._line, 65536)
        except OSError:  # Linux's way to say that the other side is closed
            return b""
        self.written += more
        return more
