"""``python -m tests.support.forker FD [PACKAGE…]``: the process whose forks `tests.support.forks` asks for. Modules of
the packages are imported, besides those of every command."""

from __future__ import annotations

import atexit
import fcntl
import gc
import os
import pickle
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import IO, Any

#: A process's id, and in the end its exit code.
NUMBER = struct.Struct("i")
#: Bytes of a question at most.
_LARGEST = 200_000
#: What commands import, and their engines: all modules of the first, and the others.
_PACKAGES = ("localspec.cli", "localspec.cli.repl", "localspec.chat", "localspec.talk")
_MODULES = ("localspec.host.child", "localspec.loading", "tests.cli.repl.factories")
#: Signals that a command may have taken, and the engine it starts has not.
_TAKEN = (signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH)


@dataclass(frozen=True)
class Asked:
    module: str
    arguments: tuple[str, ...]
    folder: str
    env: dict[str, str]
    session: bool


def main() -> None:
    if os.fork():  # nobody's child, so that those who count their children do not find it
        os._exit(0)
    _import(*_PACKAGES, *sys.argv[2:])
    asked, streams = _serve(socket.socket(fileno=int(sys.argv[1])))
    _become(asked, streams)
    try:
        runpy.run_module(asked.module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if isinstance(end.code, int):
            _leave(end.code)
        raise


def _import(*packages: str) -> None:
    for name in packages:
        for module in iter_modules(import_module(name).__path__, f"{name}."):
            import_module(module.name)
    for name in _MODULES:
        import_module(name)
    gc.collect()
    gc.freeze()


def _serve(line: socket.socket) -> tuple[Asked, list[int]]:
    """Forks, and tells of ends; returns in the forks alone, with what was asked for and its standard streams."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    woken, wakes = os.pipe()
    for end in (woken, wakes):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    watched: list[socket.socket | int] = [line, woken]
    living: dict[int, int] = {}  # process → where its end is told
    while True:
        ready, _, _ = select.select(watched, [], [])
        if woken in ready:
            os.read(woken, 512)
            _bury(living)
        if line not in ready:
            continue
        data, fds, _, _ = socket.recv_fds(line, _LARGEST, 4)
        if not data:
            os._exit(0)
        *streams, tells = fds
        process = os.fork()
        if process == 0:
            signal.set_wakeup_fd(-1)
            for fd in (line.detach(), woken, wakes, tells, *living.values()):
                os.close(fd)
            return pickle.loads(data), streams
        living[process] = tells
        os.write(tells, NUMBER.pack(process))
        for fd in streams:
            os.close(fd)


def _bury(living: dict[int, int]) -> None:
    for process, tells in list(living.items()):
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            with suppress(BrokenPipeError):  # nobody waits for it
                os.write(tells, NUMBER.pack(os.waitstatus_to_exitcode(status)))
            os.close(living.pop(process))


def _become(asked: Asked, streams: list[int]) -> None:
    """As if this process had just been started."""
    if asked.session:
        os.setsid()
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
        os.close(fd)
    if asked.session:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(asked.folder)
    os.environ.clear()
    os.environ.update(asked.env)
    tempfile.tempdir = None
    sys.argv = [asked.module, *asked.arguments]
    sys.path[0] = asked.folder
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = _stream(number, getattr(sys, name))
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    process: Any = import_module("localspec.host.process")
    started = process._start
    process._start = lambda *given: (_engine if threading.active_count() == 1 else started)(*given)


def _stream(number: int, like: Any) -> Any:
    """As Python opens the standard streams; stderr keeps no more than a line, wherever it goes."""
    buffering = 1 if number == 2 else -1
    return open(number, like.mode, buffering, encoding=like.encoding, errors=like.errors, closefd=False)


def _leave(code: int) -> None:
    """As the interpreter does, but for taking all modules apart: a fork would copy their memory for that."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(code)


class _Engine:
    """An engine's process, as far as `localspec.host.process` looks at it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        with self._lock:
            if self._code is None:
                found, status = os.waitpid(self.pid, os.WNOHANG)
                if found:
                    self._code = os.waitstatus_to_exitcode(status)
            return self._code

    def wait(self, timeout: float | None = None) -> int:
        began = time.monotonic()
        while (code := self.poll()) is None:
            if timeout is not None and time.monotonic() - began > timeout:
                raise subprocess.TimeoutExpired("engine", timeout)
            time.sleep(0.002)
        return code


def _engine(fd: int, output: IO[bytes]) -> _Engine:
    """In place of `localspec.host.process._start`, where this process has one thread."""
    parent = os.getpid()
    if child := os.fork():
        return _Engine(child)
    os.setsid()
    for number, stream in enumerate((os.open(os.devnull, os.O_RDONLY), output.fileno(), output.fileno())):
        os.dup2(stream, number)
    os.closerange(3, fd)
    os.closerange(fd + 1, os.sysconf("SC_OPEN_MAX"))
    for number in _TAKEN:
        signal.signal(number, signal.SIG_DFL)
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")
    sys.stdout, sys.stderr = _stream(1, sys.stdout), _stream(2, sys.stderr)
    sys.argv = ["localspec.host.child", str(fd), str(parent)]
    import_module("localspec.host.child").main()
    raise AssertionError("an engine's process does not return")


if __name__ == "__main__":
    main()
