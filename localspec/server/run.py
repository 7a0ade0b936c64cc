"""The server as a process: its address, its signals, its end."""

from __future__ import annotations

import asyncio
import math
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import uvicorn

from localspec.errors import Cancelled, UsageError
from localspec.server.answering import Limits
from localspec.server.app import application
from localspec.server.desk import Desk, EnginePort
from localspec.server.gate import Rules, is_loopback
from localspec.server.ledger import Ledger
from localspec.server.routes import Api
from localspec.server.setting import Setting

#: Connections that wait to be taken.
_BACKLOG = 512
#: Seconds that the last words of answers which were given up may take to reach their clients, and between two looks.
_LAST_WORDS, _LOOK = 2.0, 0.05
_ENDS = (signal.SIGINT, signal.SIGTERM)

#: Makes an engine and what requests are read against; asks now and then whether they are still wanted.
Load = Callable[[Callable[[], bool]], tuple[EnginePort, Setting]]


@dataclass(frozen=True, slots=True)
class Plan:
    """How to serve. ``sequences`` answers run at once, ``queue`` more may wait; when asked to end, answers that run get
    ``drain_s`` seconds to finish. An engine that does not let go of an answer for ``patience_s`` hangs, and is started
    anew. Port 0 is any that is free."""

    host: str = "127.0.0.1"
    port: int = 8080
    sequences: int = 4
    queue: int = 64
    drain_s: int = 30
    patience_s: float = 60.0
    limits: Limits = field(default_factory=Limits)
    keys: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    slots: bool = True
    metrics: bool = True

    @property
    def places(self) -> int:
        """Answers that may run or wait at once."""
        return self.sequences + self.queue

    @property
    def local(self) -> bool:
        """Only this machine can reach it."""
        return is_loopback(self.host)


class Serving:
    """A server that has its address. `run` serves until a signal, or `stop` from another thread.

    Args:
        say: tells the operator.

    Raises:
        UsageError: there is no such address, or it is in use.
    """

    def __init__(self, plan: Plan, load: Load, say: Callable[[str], None]) -> None:
        self._socket = _bound(plan.host, plan.port)
        self.ledger = Ledger(plan.sequences)
        self.desk = Desk(
            lambda: load(lambda: not self.desk.draining),
            self.ledger,
            places=plan.places,
            sequences=plan.sequences,
            say=say,
            patience_s=plan.patience_s,
        )
        self.api = Api(
            self.desk,
            self.ledger,
            plan.limits,
            sequences=plan.sequences,
            slots=plan.slots,
            metrics=plan.metrics,
        )
        rules = Rules(plan.keys, plan.origins, local=plan.local, names=(plan.host,))
        config = uvicorn.Config(
            application(self.api, self.desk, rules, self._end),
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            backlog=_BACKLOG,
            timeout_graceful_shutdown=math.ceil(_LAST_WORDS),
        )
        self._server = _Server(config, self.desk, plan.drain_s, say)
        host = f"[{plan.host}]" if ":" in plan.host else plan.host
        #: Where it is.
        self.url = f"http://{host}:{self._socket.getsockname()[1]}"

    def run(self) -> None:
        """Serves; returns when all is answered, or given up.

        Raises:
            LocalspecError: the engine could not be loaded.
        """
        try:
            asyncio.run(self._server.serve(sockets=[self._socket]))
        finally:
            self.desk.close()
            self._socket.close()
        failure = self.desk.failure
        if failure is not None and not isinstance(failure, Cancelled):  # given up by whoever ended the server
            raise failure

    def stop(self) -> None:
        """From any thread: as SIGTERM."""
        self._server.leave()

    def _end(self) -> None:
        self._server.should_exit = True


class _Server(uvicorn.Server):
    """The first signal lets answers finish for a while, the second does not. Those that are given up tell their clients
    so before connections are cut; nothing is cancelled from without, which would tear what is being sent."""

    def __init__(self, config: uvicorn.Config, desk: Desk, drain_s: float, say: Callable[[str], None]) -> None:
        super().__init__(config)
        self._desk = desk
        self._drain_s = drain_s
        self._say = say
        self._hurried = False

    def leave(self) -> None:
        self._hurried = self.should_exit
        self._desk.drain()
        if self._desk.taken and not self.should_exit:
            self._say(f"finishing {answers(self._desk.taken)}; ctrl-c again ends now")
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        await self._until(lambda: self._hurried or not self._desk.busy, self._drain_s)
        self._desk.end()
        for connection in tuple(self.server_state.connections):
            connection.shutdown()
        await self._until(lambda: not self.server_state.connections, _LAST_WORDS)
        for connection in tuple(self.server_state.connections):
            connection.transport.abort()  # its client does not read, or never sent all of its request
        await super().shutdown(sockets)

    async def _until(self, condition: Callable[[], bool], seconds: float) -> None:
        end = asyncio.get_running_loop().time() + seconds
        while not condition() and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(_LOOK)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        before = {number: signal.getsignal(number) for number in _ENDS}
        for number in _ENDS:
            loop.add_signal_handler(number, self.leave)
        try:
            yield
        finally:
            for number, handler in before.items():
                loop.remove_signal_handler(number)
                signal.signal(number, handler)


def answers(count: int) -> str:
    return "1 answer" if count == 1 else f"{count} answers"


def _bound(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"--host {host} is no address: {reason}", hint="Use 127.0.0.1, or 0.0.0.0 for all.") from None
    family, kind, protocol, _, address = found[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(_BACKLOG)  # whoever has the port already is found now, not after the model is loaded
    except OSError as error:
        bound.close()
        raise UsageError(
            f"{host}:{port} cannot be listened on: {error.strerror}", hint="Choose another --port or --host."
        ) from None
    return bound
