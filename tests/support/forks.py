"""Commands as forks of a process that has imported what they need: hundreds of tests run one, and most of what such a
run took was imports.

A fork finds what a new interpreter would: arguments, folder, environment, standard streams, a session of its own if
that is asked for. Only the modules are there already. What looks at the start itself (a locale, options of the
interpreter, closed streams, what is imported) is for a new process.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path

from tests.support.forker import NUMBER, Asked

ROOT = Path(__file__).resolve().parents[2]
#: Variables that are read when they are needed, not when Python or a module starts: these may be anything.
LATE = ("LOCALSPEC_", "LLAMA_ARG_", "XDG_")
LATE_NAMES = {"HOME", "TMPDIR", "TERM", "EDITOR", "VISUAL", "SSH_TTY", "PYTEST_CURRENT_TEST"}
#: Of full screens under test; Textual reads it when it is imported.
STILL = ("TEXTUAL_ANIMATIONS", "none")


def can_fork(env: Mapping[str, str]) -> bool:
    """Whether a fork would be as a process that is started with ``env``."""
    return _early(env) == _early(_environment())


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def _early(env: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in env.items()
        if name not in LATE_NAMES and not name.startswith(LATE) and (name, value) != STILL
    }


class Fork:
    """A process, as far as `subprocess.Popen` is needed here. Somebody else's child: the one who forked it tells of
    its end."""

    def __init__(self, news: int) -> None:
        self._news = news
        (self.pid,) = NUMBER.unpack(os.read(news, NUMBER.size))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _look(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self._news], [], [], seconds)[0]:
            (self.returncode,) = NUMBER.unpack(os.read(self._news, NUMBER.size))
            os.close(self._news)
        return self.returncode


def forked(
    module: str, arguments: Sequence[str], streams: Sequence[int], env: Mapping[str, str], *, session: bool = False
) -> Fork:
    """``python -m module`` with ``streams`` as its standard ones; ``session``: of its own, at the terminal that its
    standard input is."""
    asked = Asked(module, tuple(arguments), os.getcwd(), dict(env), session)
    told, tells = os.pipe()
    try:
        socket.send_fds(_forker(STILL in env.items()), [pickle.dumps(asked)], [*streams, tells])
    finally:
        os.close(tells)
    return Fork(told)


def finished(
    module: str, arguments: Sequence[str], stdin: bytes, env: Mapping[str, str], seconds: float
) -> tuple[int, bytes, bytes]:
    """The same over pipes, ``stdin`` in the first, when it has ended: its exit code and what it wrote to two."""
    (given, gives), (out, outs), (err, errs) = (os.pipe() for _ in range(3))
    process = forked(module, arguments, (given, outs, errs), env)
    for end in (given, outs, errs):
        os.close(end)
    with ThreadPoolExecutor(3) as threads:
        threads.submit(_write, gives, stdin)
        written = [threads.submit(_read, end) for end in (out, err)]
        try:
            code = process.wait(seconds)
        finally:
            process.kill()
    return code, written[0].result(), written[1].result()


def _write(pipe: int, data: bytes) -> None:
    with suppress(BrokenPipeError), open(pipe, "wb") as file:
        file.write(data)


def _read(pipe: int) -> bytes:
    with open(pipe, "rb") as file:
        return file.read()


@cache
def _forker(still: bool) -> socket.socket:
    """The line to the process that forks, for as long as this one lives; ``still``: for full screens."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    more = dict([STILL] if still else [])
    # No threads, not of numpy's either: a fork has no other than the one that made it.
    env = {**_environment(), "OPENBLAS_NUM_THREADS": "1", **more}
    command = [sys.executable, "-m", "tests.support.forker", str(theirs.fileno()), *["localspec.tui"] * still]
    subprocess.run(command, cwd=ROOT, env=env, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, check=True)
    theirs.close()
    return ours
