"""The front end's side of one engine process, from its start to its end.

POSIX only. Windows would need a named pipe (`multiprocessing.connection.Listener("AF_PIPE")`, address and key over
the child's stdin) in place of the inherited socket, a job object in place of the process group, and its own exit
codes in `localspec.host.death`.
"""

from __future__ import annotations

import itertools
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import IO

from localspec.errors import Cancelled, EngineDied, LocalspecError
from localspec.host.death import died
from localspec.host.inbox import Inbox
from localspec.host.wire import (
    LOAD,
    Call,
    Cancel,
    Close,
    Command,
    Events,
    Grant,
    Look,
    Progress,
    Reply,
    Start,
    pack,
    receive,
)
from localspec.types import EngineInfo, EngineStatus, Failed, GenerationRequest

_GRACE = 2.0  # seconds a process gets to end by itself
_LOG_TAIL = 8192  # bytes of its output that are searched for last words


class EngineProcess:
    """A child and two threads: one reads what it sends, one writes.

    Callers never touch the connection: an interrupt (ctrl-c) in the middle of a write would leave half a message
    on the line. The reading thread also buries the child: when it ends, the process is reaped, everything is
    closed, and whoever waited has an answer.

    Raises:
        EngineDied: the process cannot be started.
    """

    def __init__(self) -> None:
        self._tickets = itertools.count(LOAD + 1)
        self._calls: dict[int, SimpleQueue[Progress | Reply]] = {}
        self._inboxes: dict[int, Inbox] = {}
        self._outbox: SimpleQueue[bytes | None] = SimpleQueue()
        self._death: EngineDied | None = None
        self._closing = False
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (the reading thread closes it)
        ours, theirs = socket.socketpair()
        try:
            self._process = _start(theirs.fileno(), self._log)
        except OSError as error:
            ours.close()
            self._log.close()
            raise EngineDied(f"the engine process cannot be started: {error}") from error
        finally:
            theirs.close()
        self._connection = Connection(ours.detach())
        self._writer = threading.Thread(target=self._write, name="engine-writer", daemon=True)
        self._reader = threading.Thread(target=self._read, name="engine-reader", daemon=True)
        self._writer.start()
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._death is None and not self._closing

    # -- what callers do, from any thread

    def load(self, recipe: bytes, on_progress: Callable[[str, float], bool] | None) -> EngineInfo:
        """Waits for the engine; if that fails, or is interrupted, the process is gone.

        Raises:
            Cancelled: ``on_progress`` returned False.
            LocalspecError: what the load raised.
            EngineDied: the process died of it.
        """
        try:
            news = self._open_call(LOAD, Start(recipe))
            while isinstance(step := news.get(), Progress):
                if on_progress is not None and not on_progress(step.stage, step.share):
                    raise Cancelled("loading was given up")
            if isinstance(step.value, LocalspecError):
                raise step.value
            assert isinstance(step.value, EngineInfo)
            return step.value
        except BaseException:
            self.kill()
            raise
        finally:
            self._calls.pop(LOAD, None)

    def submit(self, request: GenerationRequest) -> tuple[int, Inbox]:
        """Queues a request; its ticket and where its events arrive.

        Raises:
            LocalspecError: what the engine raised; nothing was queued.
            EngineDied: the process is gone.
        """
        ticket, inbox = next(self._tickets), Inbox()
        self._inboxes[ticket] = inbox
        try:
            self._call(Call(ticket, "submit", request))
        except BaseException:
            self._inboxes.pop(ticket, None)
            self.cancel(ticket)
            raise
        return ticket, inbox

    def encode(self, request: GenerationRequest) -> list[int]:
        tokens = self._call(Call(next(self._tickets), "encode", request))
        assert isinstance(tokens, list)
        return tokens

    def status(self) -> EngineStatus:
        """How the engine stands; raises as `encode`."""
        ticket = next(self._tickets)
        status = self._call(Look(ticket))
        assert isinstance(status, EngineStatus)
        return status

    def cancel(self, ticket: int) -> None:
        self._send(Cancel(ticket))

    def grant(self, ticket: int, steps: int | None) -> None:
        self._send(Grant(ticket, steps))

    def close(self) -> None:
        """Running answers end as cancelled; a process that does not end within two seconds is killed."""
        self._closing = True
        if threading.current_thread() in (self._reader, self._writer):
            # The garbage collector may call from anywhere; these two cannot wait for themselves.
            self._kill()
            return
        self._send(Close())
        self._reader.join(_GRACE)
        self.kill()

    def kill(self) -> None:
        """At once, with everything it has started."""
        self._closing = True
        if self._reader.is_alive():
            self._kill()
            self._reader.join()

    # -- calls and answers

    def _send(self, command: Command) -> None:
        self._outbox.put(pack(command))

    def _call(self, call: Call | Look) -> object:
        news = self._open_call(call.ticket, call)
        try:
            reply = news.get()
        finally:
            self._calls.pop(call.ticket, None)
        assert isinstance(reply, Reply)
        if isinstance(reply.value, LocalspecError):
            raise reply.value
        return reply.value

    def _open_call(self, ticket: int, command: Command) -> SimpleQueue[Progress | Reply]:
        news: SimpleQueue[Progress | Reply] = SimpleQueue()
        self._calls[ticket] = news
        # Looked at after the call is listed: a death that comes later finds it in the list.
        if self._death is not None:
            self._calls.pop(ticket, None)
            raise copy(self._death)
        self._send(command)
        return news

    # -- the threads

    def _write(self) -> None:
        _leave_signals_to_others()
        while (data := self._outbox.get()) is not None:
            try:
                self._connection.send_bytes(data)
            except OSError:
                return  # the reading thread sees the end too

    def _read(self) -> None:
        _leave_signals_to_others()
        try:
            while (news := receive(self._connection, lambda: self._process.poll() is None)) is not None:
                self._deliver(news)
        except Exception as error:
            self._death = EngineDied(f"the engine process sent what cannot be read: {error}")
            self._kill()
        finally:
            self._bury()

    def _deliver(self, news: object) -> None:
        match news:
            case Progress():
                if (call := self._calls.get(LOAD)) is not None:
                    call.put(news)
            case Reply(ticket, value):
                if isinstance(value, int) and (inbox := self._inboxes.get(ticket)) is not None:
                    inbox.number = value
                if (call := self._calls.get(ticket)) is not None:
                    call.put(news)
            case Events(ticket, events):
                inbox = self._inboxes.get(ticket)
                if inbox is None:  # nobody waits for it any more
                    return
                for event in events:
                    inbox.put(event)
                if inbox.over:
                    self._inboxes.pop(ticket, None)

    def _bury(self) -> None:
        """The child sends no more: reaps it, tells everyone who waits, closes what is open."""
        try:
            code = self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self._kill()
            code = self._process.wait()
        closed = EngineDied("the engine is closed") if self._closing else None
        death = self._death = self._death or closed or died(code, _tail(self._log))
        for ticket, call in list(self._calls.items()):
            call.put(Reply(ticket, copy(death)))
        for inbox in list(self._inboxes.values()):
            inbox.put(Failed.of(inbox.number, death))
        self._inboxes.clear()
        self._outbox.put(None)
        self._writer.join()
        self._connection.close()
        self._log.close()

    def _kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            if self._process.poll() is None:  # else the number may be someone else's by now
                os.killpg(self._process.pid, signal.SIGKILL)


def _start(fd: int, output: IO[bytes]) -> subprocess.Popen[bytes]:
    """Starts a child that can import what this process can, and cannot reach the terminal."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return subprocess.Popen(
        # -P: the folder it is started in must not come before the standard library.
        [sys.executable, "-P", "-m", "localspec.host.child", str(fd), str(os.getpid())],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=(fd,),
        start_new_session=True,
        # A ggml abort would otherwise start a debugger on itself before it dies.
        env={"GGML_NO_BACKTRACE": "1", **os.environ, "PYTHONPATH": path},
    )


def _leave_signals_to_others() -> None:
    """For helper threads. A signal that one of them takes does not wake the main thread; and SIGPIPE, where the
    program lets it kill (``localspec … | head``), must not when it is the engine's line that broke."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


def _tail(file: IO[bytes]) -> str:
    """The end of what the child wrote. Positions are shared with it, so no seeking."""
    size = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), _LOG_TAIL, max(0, size - _LOG_TAIL)).decode(errors="replace")


def recipe(factory: Callable[..., object] | None, options: object) -> bytes:
    """What a child builds its engine from. Functions travel by name, so they must be importable there: none of
    ``__main__``."""
    return pickle.dumps((factory, options), protocol=pickle.HIGHEST_PROTOCOL)
