"""`HostedEngine`: the surface of `localspec.engine.Engine`, the work elsewhere."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from types import TracebackType

from localspec.backends.memory import resident_bytes
from localspec.host.inbox import Inbox
from localspec.host.process import EngineProcess, recipe
from localspec.types import EngineInfo, EngineStatus, Event, GenerationRequest


class HostedHandle:
    """The events of one request. Leaving the loop early cancels the request; a second loop gives what is left, and
    the last event in any case. One thread at a time may iterate."""

    def __init__(self, engine: HostedEngine, process: EngineProcess, ticket: int, inbox: Inbox) -> None:
        self.number = inbox.number
        self._engine = engine  # which is closed when nobody holds it any more
        self._process = process
        self._ticket = ticket
        self._inbox = inbox

    def __iter__(self) -> Iterator[Event]:
        try:
            yield from self._inbox.events()
        finally:
            self.cancel()

    def cancel(self) -> None:
        """From any thread: stops the answer within one pass; `Finished` with reason ``cancelled`` follows."""
        if not self._inbox.over:
            self._process.cancel(self._ticket)

    def grant(self, steps: int | None) -> None:
        """From any thread: the answer may make so many verify steps more, and then waits; ``None``: to its end. On one
        that runs without a limit, 0 makes it wait where it is."""
        if not self._inbox.over:
            self._process.grant(self._ticket, steps)


class HostedEngine:
    """An engine in a process of its own. What it dies of, it dies of alone: open answers end with
    ``Failed(kind="EngineDied")``, later calls raise `EngineDied`, and `restart` makes a new one.

    Blocks until the engine is loaded. Any thread may submit, encode and cancel; submit and encode wait for the pass
    that runs. Request numbers count from 1 in every new process.

    Args:
        options: what ``factory`` builds from; must be picklable.
        factory: called in the child as ``factory(options, progress=...)``, gives an engine (`Engine`, or anything
            with ``info``, ``idle``, ``status``, ``submit``, ``encode``, ``step`` and ``close``). A function of an
            importable module, not of ``__main__``. Default: `localspec.load`.
        on_progress: called in this thread with what is being loaded and the share done, 0…1; returning False gives
            up.

    Raises:
        LocalspecError: what the load raised, as the same class.
        Cancelled: ``on_progress`` returned False.
        EngineDied: the process died while loading, or cannot be started.
    """

    info: EngineInfo

    def __init__(
        self,
        options: object,
        *,
        factory: Callable[..., object] | None = None,
        on_progress: Callable[[str, float], bool] | None = None,
    ) -> None:
        self._recipe = recipe(factory, options)
        self._on_progress = on_progress
        self._start()

    def _start(self) -> None:
        self._process = EngineProcess()
        # At the latest when this object or the interpreter goes.
        self._close = weakref.finalize(self, self._process.close)
        self.info = self._process.load(self._recipe, self._on_progress)

    def __enter__(self) -> HostedEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        """Whether requests can be made."""
        return self._process.alive

    @property
    def pid(self) -> int:
        """Of the engine's process."""
        return self._process.pid

    @property
    def memory(self) -> int | None:
        """Bytes that its process holds; ``None``: not known here."""
        return resident_bytes(self.pid)

    def submit(self, request: GenerationRequest) -> HostedHandle:
        """Queues a request.

        Raises:
            UsageError: options or prompt that cannot be honoured; nothing was queued.
            ModelError: the chat template refuses the messages.
            EngineDied: the process is gone; `restart` starts another.
        """
        process = self._process
        return HostedHandle(self, process, *process.submit(request))

    def encode(self, request: GenerationRequest) -> list[int]:
        """The prompt as tokens, of any length; otherwise raises as `submit`."""
        return self._process.encode(request)

    @property
    def status(self) -> EngineStatus:
        """How it stands between two of its steps; waits for the one that runs. Raises `EngineDied` if it is gone."""
        return self._process.status()

    def restart(self) -> None:
        """A new process with the same options, in place of this one; raises as the constructor."""
        self.close()
        self._start()

    def close(self) -> None:
        """Ends the process: running answers end as cancelled. One that does not listen is killed after two
        seconds. May be called again."""
        self._process.close()
        self._close.detach()
