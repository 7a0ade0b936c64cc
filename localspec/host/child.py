"""The engine's side: ``python -m localspec.host.child <fd> <pid of the front end>``.

Two threads. The main one owns the engine: it obeys commands between steps and sends on the events of each. The other
only reads, so that a cancellation interrupts a native pass, and the process ends with its front end even in the
middle of one.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import sys
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import NoReturn, Protocol

from localspec.errors import EngineError, LocalspecError
from localspec.host.wire import (
    LOAD,
    Call,
    Cancel,
    Close,
    Command,
    Events,
    Grant,
    Look,
    News,
    Progress,
    Reply,
    Start,
    pack,
    receive,
)
from localspec.types import EngineInfo, EngineStatus, Event, Failed, Finished, GenerationRequest


class _Handle(Protocol):
    number: int

    def drain(self) -> Sequence[Event]: ...

    def cancel(self) -> None: ...

    def grant(self, steps: int | None) -> None: ...


class _Engine(Protocol):
    @property
    def info(self) -> EngineInfo: ...

    @property
    def idle(self) -> bool: ...

    @property
    def status(self) -> EngineStatus: ...

    def submit(self, request: GenerationRequest) -> _Handle: ...

    def encode(self, request: GenerationRequest) -> list[int]: ...

    def step(self) -> None: ...

    def close(self) -> None: ...


class Child:
    """One engine behind one connection; ``parent`` is the process at its other end."""

    def __init__(self, connection: Connection, parent: int) -> None:
        self._connection = connection
        self._parent = parent
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._handles: dict[int, _Handle] = {}  # ticket → request that is not over

    def run(self) -> None:
        """Loads, serves, closes. An error in a step is not survived: no cache can be trusted after it."""
        start = self._receive()
        if not isinstance(start, Start):
            return
        threading.Thread(target=self._read, daemon=True).start()
        try:
            engine = self._load(start.recipe)
        except Exception as error:
            self._send(Reply(LOAD, _presentable(error)))
            return
        self._send(Reply(LOAD, engine.info))
        self._serve(engine)
        engine.close()

    def _send(self, news: News) -> None:
        self._connection.send_bytes(pack(news))

    # -- the reading thread

    def _receive(self) -> object | None:
        return receive(self._connection, lambda: os.getppid() == self._parent)

    def _read(self) -> NoReturn:
        try:
            while (command := self._receive()) is not None:
                assert isinstance(command, Command)
                # Now, for the pass that runs; and once more in turn, for what is not yet submitted.
                self._stop(command)
                self._commands.put(command)
        except BaseException:
            _crash()
        _vanish()

    def _stop(self, command: Command) -> None:
        match command:
            case Cancel(ticket):
                tickets = [ticket]
            case Close():
                tickets = list(self._handles)
            case _:
                return
        for ticket in tickets:
            handle = self._handles.get(ticket)
            if handle is not None:
                handle.cancel()

    # -- the engine's thread

    def _load(self, recipe: bytes) -> _Engine:
        factory, options = pickle.loads(recipe)
        if factory is None:
            from localspec.loading import load as factory
        engine: _Engine = factory(options, progress=self._progress)
        return engine

    def _progress(self, stage: str, share: float) -> bool:
        self._send(Progress(stage, share))
        return True  # a front end that gives up kills this process

    def _serve(self, engine: _Engine) -> None:
        closing = False
        while self._handles or not closing:
            for command in self._due(engine.idle):
                self._obey(engine, command)
                closing = closing or isinstance(command, Close)
            if self._handles:
                engine.step()
                self._report()

    def _due(self, idle: bool) -> list[Command]:
        """Commands that have come; waits for one when there is nothing else to do."""
        due = [self._commands.get()] if idle else []
        while not self._commands.empty():
            due.append(self._commands.get())
        return due

    def _obey(self, engine: _Engine, command: Command) -> None:
        match command:
            case Call():
                self._answer(engine, command)
            case Look(ticket):
                self._send(Reply(ticket, engine.status))
            case Grant(ticket, steps):
                if (handle := self._handles.get(ticket)) is not None:  # else it is over
                    handle.grant(steps)
            case _:
                self._stop(command)

    def _answer(self, engine: _Engine, call: Call) -> None:
        try:
            if call.what == "encode":
                self._send(Reply(call.ticket, engine.encode(call.request)))
            else:
                handle = engine.submit(call.request)
                self._handles[call.ticket] = handle
                self._send(Reply(call.ticket, handle.number))
        except Exception as error:
            self._send(Reply(call.ticket, _presentable(error)))

    def _report(self) -> None:
        for ticket, handle in list(self._handles.items()):
            events = tuple(handle.drain())
            if events:
                self._send(Events(ticket, events))
                if isinstance(events[-1], Finished | Failed):
                    del self._handles[ticket]


def _presentable(error: Exception) -> LocalspecError:
    """What can be raised on the other side."""
    if isinstance(error, LocalspecError):
        return error
    return EngineError(f"{type(error).__name__}: {error}")


def _vanish() -> NoReturn:
    """Ends this process and whatever it has started, in the middle of a native pass too."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(0)


def _crash() -> NoReturn:
    """Ends this process with the error that is being handled as its last words."""
    sys.excepthook(*sys.exc_info())
    sys.stderr.flush()
    os._exit(1)


def main() -> NoReturn:
    # The terminal's ctrl-c is for the front end; this process has its own session, but `kill -INT` reaches anyone.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    fd, parent = map(int, sys.argv[1:])
    os.set_inheritable(fd, False)  # else a process started here would keep the line open
    try:
        Child(Connection(fd), parent).run()
    except BaseException:
        _crash()
    os._exit(0)  # past the clean-up of native libraries, which has nothing left to do and may crash


if __name__ == "__main__":
    main()
