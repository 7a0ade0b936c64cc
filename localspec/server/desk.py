"""Where requests meet the engine: a bounded queue, answers as they come, an engine that dies and is started anew.

The engine's events come through blocking iterators, one thread an answer; here they cross over to the event loop.
Who waits for whom: the engine for nobody (a slow reader gets fewer, larger events), the thread for its reader, the
reader for its client.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, repeat
from typing import Literal, Protocol

from localspec.errors import EngineError, LocalspecError
from localspec.server.errors import ApiError
from localspec.server.ledger import Ledger
from localspec.server.setting import Setting
from localspec.types import EngineInfo, EngineStatus, Event, Failed, Finished, GenerationRequest

State = Literal["loading", "ready", "restarting"]
#: Events of one answer that wait for their reader.
_AHEAD = 64
#: Seconds between two looks at whether the engine lives.
_LOOK = 0.2
#: Seconds that somebody who asks how the engine stands waits for its pass.
_GLANCE = 1.0
#: Seconds before an engine that does not start is started again: longer each time, up to the last.
_PAUSES = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class Handle(Protocol):
    def __iter__(self) -> Iterator[Event]: ...

    def cancel(self) -> None: ...


class EnginePort(Protocol):
    """What is needed of `localspec.host.HostedEngine`."""

    @property
    def info(self) -> EngineInfo: ...

    @property
    def alive(self) -> bool: ...

    @property
    def memory(self) -> int | None: ...

    @property
    def status(self) -> EngineStatus: ...

    def submit(self, request: GenerationRequest) -> Handle: ...

    def restart(self) -> None: ...

    def close(self) -> None: ...


class Answers:
    """The answers to one HTTP request, one for each of its choices. Threads put events in, the event loop takes them
    out; `close` gives up what is not over."""

    def __init__(self, loop: asyncio.AbstractEventLoop, count: int) -> None:
        self.loop = loop
        #: Threads that are still at it.
        self.threads = count
        self._open = count
        self._events: deque[tuple[int, Event]] = deque()
        self._news = asyncio.Event()
        self._room = threading.Semaphore(_AHEAD * count)
        self._handles: list[Handle] = []
        self._lock = threading.Lock()
        self._closed = False
        #: Why no more of them comes, though they are not over.
        self.ended: ApiError | None = None

    @property
    def over(self) -> bool:
        """All events of all choices were taken."""
        return self._open == 0

    async def take(self, seconds: float) -> list[tuple[int, Event]]:
        """Everything that is there, each event with the number of its choice; nothing, if nothing comes within so many
        seconds.

        Raises:
            ApiError: they were ended.
        """
        if not (self._events or self.ended):
            self._news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._news.wait()
        if self.ended is not None:
            raise self.ended
        taken = [self._events.popleft() for _ in range(len(self._events))]
        for _ in taken:
            self._room.release()
        self._open -= sum(isinstance(event, Finished | Failed) for _, event in taken)
        return taken

    def end(self, why: ApiError) -> None:
        """Cancels what is not over, and lets whoever takes them say why. On the event loop."""
        self.ended = why
        self._news.set()
        self.close()

    def close(self) -> None:
        """Nobody wants these answers any more, from any thread: cancels what runs or waits."""
        with self._lock:
            self._closed = True
            handles = tuple(self._handles)
        for handle in handles:
            handle.cancel()

    # -- the threads

    def hold(self, handle: Handle) -> None:
        with self._lock:
            self._handles.append(handle)
            closed = self._closed
        if closed:
            handle.cancel()

    def put(self, index: int, event: Event) -> None:
        while not self._closed and not self._room.acquire(timeout=1.0):
            pass
        self._events.append((index, event))
        _call(self.loop, self._news.set)


class Desk:
    """Takes requests to the engine.

    Args:
        load: makes the engine, and what requests are read against; called in a thread.
        ledger: hears of everything.
        places: answers that may run or wait at once.
        sequences: of the engine: answers that run at once.
        say: tells the operator.
        patience_s: seconds that the engine may take to let go of an answer. It takes one pass; what takes longer hangs.
    """

    def __init__(
        self,
        load: Callable[[], tuple[EnginePort, Setting]],
        ledger: Ledger,
        *,
        places: int,
        sequences: int,
        say: Callable[[str], None],
        patience_s: float,
    ) -> None:
        self._load = load
        self._ledger = ledger
        self._places = places
        self._sequences = sequences
        self._say = say
        self._patience_s = patience_s
        self._loaded: tuple[EnginePort, Setting] | None = None
        #: Places that are taken.
        self.taken = 0
        self._open: set[Answers] = set()
        self._left: dict[Answers, float] = {}  # given up, but the engine is still at them → since when
        self._asking: asyncio.Task[EngineStatus | None] | None = None
        self._draining = False
        self.state: State = "loading"
        #: Why there is no engine, if it could not be loaded.
        self.failure: Exception | None = None

    @property
    def engine(self) -> EnginePort:
        """Raises `ApiError` if it is not there."""
        return self._ready[0]

    @property
    def setting(self) -> Setting:
        """What requests are read against; raises `ApiError` if there is nobody to answer them."""
        return self._ready[1]

    @property
    def _ready(self) -> tuple[EnginePort, Setting]:
        if self._draining:
            raise _going_down()
        if self._loaded is None:
            raise ApiError(503, "Loading model", code="loading", retry_after=2)
        if self.state == "restarting" or not self._loaded[0].alive:
            raise ApiError(503, "the engine died and is being started again", code="engine_died", retry_after=2)
        return self._loaded

    async def start(self) -> None:
        """Loads the engine and watches over it until `drain`; if it cannot be loaded, ``failure`` says why."""
        try:
            self._loaded = await asyncio.to_thread(self._load)
        except Exception as error:
            self.failure = error
            return
        engine, self.state = self._loaded[0], "ready"
        while not self._draining:
            if self._hangs():
                self._say("the engine hangs: it is ended")
                await asyncio.to_thread(engine.close)
            if not engine.alive:
                await self._revive(engine)
            await asyncio.sleep(_LOOK)

    def _hangs(self) -> bool:
        """It does not let go of an answer."""
        since = min(self._left.values(), default=math.inf)
        return asyncio.get_running_loop().time() - since > self._patience_s

    async def _revive(self, engine: EnginePort) -> None:
        self.state = "restarting"
        self._say("the engine died: it is started again")
        for pause in chain(_PAUSES, repeat(_PAUSES[-1])):
            self._ledger.restart()
            try:
                await asyncio.to_thread(engine.restart)
                break
            except LocalspecError as error:
                self._say(f"the engine cannot be started: {error.message}")
            if await self._drained(pause):
                return
        self.state = "ready"

    async def _drained(self, seconds: float) -> bool:
        """Whether the server is to end within so many seconds."""
        end = asyncio.get_running_loop().time() + seconds
        while not self._draining and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(_LOOK)
        return self._draining

    async def status(self) -> EngineStatus | None:
        """How the engine stands; ``None`` if it does not say so soon, since a pass takes long. It is asked once at a
        time, however many want to know.

        Raises:
            ApiError: it is not there.
        """
        engine = self.engine
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(asyncio.to_thread(_status, engine))
        done, _ = await asyncio.wait({self._asking}, timeout=_GLANCE)
        return done.pop().result() if done else None

    @property
    def draining(self) -> bool:
        """No more requests are taken, and an engine that is being loaded is not needed any more."""
        return self._draining

    def drain(self) -> None:
        """Takes no more requests; those that are there are still answered."""
        self._draining = True

    @property
    def busy(self) -> bool:
        """Somebody waits for an answer."""
        return bool(self._open)

    def end(self) -> None:
        """Gives up what is not answered yet; whoever waits for it is told. On the event loop."""
        self.drain()
        for answers in tuple(self._open):
            answers.end(_going_down())

    def close(self) -> None:
        """Ends the engine, and what it still answers."""
        self.drain()
        for answers in tuple(self._open):
            answers.close()
        if self._loaded is not None:
            self._loaded[0].close()

    def ask(self, requests: Sequence[GenerationRequest], slot: int = -1) -> Answers:
        """Queues requests that belong together.

        Args:
            slot: the one that they are to be shown in, -1 for any.

        Raises:
            ApiError: 503: there is no engine, or no place for so many.
        """
        engine = self.engine
        if self.taken + len(requests) > self._places:
            self._ledger.refuse()
            raise ApiError(
                503,
                f"all {self._places} places of the queue are taken: try again later",
                code="queue_full",
                retry_after=self._until_a_place_is_free(),
            )
        self.taken += len(requests)
        answers = Answers(asyncio.get_running_loop(), len(requests))
        self._open.add(answers)
        for index, request in enumerate(requests):
            number = self._ledger.ask(speculative=not request.spec.off, slot=slot)
            work = (engine, answers, index, request, number)
            threading.Thread(target=self._work, args=work, name=f"answer-{number}", daemon=True).start()
        return answers

    def leave(self, answers: Answers) -> None:
        """The client has all it wants of them, or is gone: what still runs or waits is cancelled."""
        answers.close()
        self._open.discard(answers)
        if answers.threads:
            self._left.setdefault(answers, answers.loop.time())

    def _until_a_place_is_free(self) -> int:
        mean = self._ledger.read().mean_answer_s or 1.0
        return min(max(round(mean / self._sequences), 1), 60)

    # -- one thread an answer

    def _work(self, engine: EnginePort, answers: Answers, index: int, request: GenerationRequest, number: int) -> None:
        try:
            self._pass_on(engine, answers, index, request, number)
        finally:
            _call(answers.loop, lambda: self._free(answers))

    def _pass_on(
        self, engine: EnginePort, answers: Answers, index: int, request: GenerationRequest, number: int
    ) -> None:
        try:
            handle = engine.submit(request)
            answers.hold(handle)
            for event in handle:
                self._ledger.take(number, event)
                answers.put(index, event)
            return
        except LocalspecError as error:
            failed = Failed.of(0, error)
        except Exception as error:
            failed = Failed.of(0, EngineError(f"{type(error).__name__}: {error}"))
        self._ledger.take(number, failed)
        answers.put(index, failed)

    def _free(self, answers: Answers) -> None:
        self.taken -= 1
        answers.threads -= 1
        if not answers.threads:
            self._left.pop(answers, None)


def _going_down() -> ApiError:
    return ApiError(503, "the server is going down", code="draining", retry_after=10)


def _status(engine: EnginePort) -> EngineStatus | None:
    try:
        return engine.status
    except LocalspecError:  # it has just died
        return None


def _call(loop: asyncio.AbstractEventLoop, what: Callable[[], object]) -> None:
    """From a thread, in a loop that may be over."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(what)
