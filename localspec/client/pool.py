"""Several servers as one engine: each answer is made by one of them, and asked for again where that goes wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from types import TracebackType

from localspec.client.engine import RemoteEngine
from localspec.client.handle import RemoteHandle
from localspec.client.site import Busy, Lost
from localspec.client.web import Broken, shown
from localspec.errors import EngineDied, LocalspecError, NetworkError, UsageError
from localspec.types import EngineInfo, Event, Failed, Finished, GenerationRequest, SpecStats, StepStats, Tokens

Opened = Callable[[], RemoteEngine]


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds, but for ``tries``, how often a request is sent that servers take and do not answer.

    A server that fails rests for ``pause``, twice as long each time, and ``longest`` at most. If none has answered
    anything for ``most``, it is given up.
    """

    tries: int = 4
    pause: float = 1.0
    longest: float = 60.0
    most: float = 300.0

    def rest(self, failures: int) -> float:
        """After so many in a row."""
        return float(min(self.pause * 2 ** min(failures - 1, 32), self.longest))


class _Place:
    """One server: how many answers it makes, and until when it rests. Guarded by the lock of its pool."""

    def __init__(self, url: str, opened: Opened) -> None:
        self.url = shown(url)
        self._opened = opened
        self._opening = threading.Lock()
        self._engine: RemoteEngine | None = None
        self.running = 0
        self.rests_until = 0.0
        self.failures = 0
        #: It is gone: it gets a single request to see whether it is back.
        self.out = False

    def engine(self) -> RemoteEngine:
        """Not there before the server has told what it is; raises as `RemoteEngine`. Takes its time: not for those
        who hold the lock."""
        with self._opening:
            if self._engine is None:
                self._engine = self._opened()
            return self._engine

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()


class PoolHandle:
    """The events of one request, all at once when the answer is whole: what a server began and did not end is nobody's
    answer."""

    def __init__(self, pool: Pool, request: GenerationRequest) -> None:
        self.request = request
        self.cancelled = threading.Event()
        self._pool = pool
        self._at: RemoteHandle | None = None

    def __iter__(self) -> Iterator[Event]:
        yield from self._pool.answer(self)

    def cancel(self) -> None:
        """From any thread but not from a signal handler: the answer ends as cancelled."""
        self.cancelled.set()
        if (at := self._at) is not None:
            at.cancel()
        self._pool.wake()

    def at(self, handle: RemoteHandle) -> RemoteHandle:
        """It is being made there."""
        self._at = handle
        if self.cancelled.is_set():
            handle.cancel()
        return handle


class Pool:
    """Spreads requests over servers, ``parallel`` at a time to each. One that does not answer is left out, with a
    line, and asked again later; one that is busy gets nothing for as long as it says.

    Opening waits until every server has said what it is, or has failed to.

    Args:
        servers: URL → how to open it.
        say: takes the lines, from any thread.

    Raises:
        NetworkError: none of them answers.
    """

    def __init__(
        self,
        servers: Sequence[tuple[str, Opened]],
        *,
        parallel: int,
        say: Callable[[str], None],
        patience: Patience | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._places = [_Place(url, opened) for url, opened in servers]
        self._parallel = parallel
        self._say = say
        self._patience = patience or Patience()
        self._clock = clock
        self._changed = threading.Condition()
        self._good = clock()  # when the last answer was whole
        self.alive = True
        self.info: EngineInfo = self._open()

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for place in self._places:
            place.close()

    def submit(self, request: GenerationRequest) -> PoolHandle:
        return PoolHandle(self, request)

    def restart(self) -> None:
        """There is nothing to start.

        Raises:
            NetworkError: in any case.
        """
        what = "no server answers" if len(self._places) > 1 else f"{self._places[0].url} does not answer"
        raise NetworkError(f"{what} any more", hint="With -o FILE, --resume goes on where it stopped.")

    def wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _open(self) -> EngineInfo:
        infos: list[EngineInfo] = []
        failed: list[LocalspecError] = []
        for place in self._places:
            try:
                infos.append(place.engine().info)
            except NetworkError as error:
                failed.append(error)
                self._leave_out(place, error)
        if not infos:
            raise failed[0]
        if len(models := dict.fromkeys(_model(info) for info in infos)) > 1:
            self._say(f"the servers have different models: {', '.join(models)}")
        return infos[0]

    # -- in the thread of one answer

    def answer(self, handle: PoolHandle) -> Iterator[Event]:
        """The events of an answer that is whole, or of a failure that no other server would mend."""
        tries = 0
        while (place := self._take(handle)) is not None:
            events, fault = self._attempt(place, handle)
            self._settle(place, fault)
            tries += isinstance(fault, Lost | Broken)
            if fault is None or isinstance(fault, UsageError) or tries >= self._patience.tries:
                yield from events
                return
        yield self._stopped(handle)

    def _attempt(self, place: _Place, handle: PoolHandle) -> tuple[list[Event], LocalspecError | None]:
        try:
            made = handle.at(place.engine().submit(handle.request))
            events = list(made)
        except LocalspecError as error:
            return [Failed.of(0, error)], error
        except BaseException:  # whatever it was, the place is free again
            self._settle(place, None)
            raise
        return _at_once(events), made.fault

    def _stopped(self, handle: PoolHandle) -> Failed:
        """An end without an answer."""
        if handle.cancelled.is_set():
            return Failed.of(0, LocalspecError("it was stopped"))
        return Failed.of(0, EngineDied("no server answers any more"))

    def _take(self, handle: PoolHandle) -> _Place | None:
        """Waits for a place at a server; ``None``: nobody wants it any more, or all servers are given up."""
        with self._changed:
            while not handle.cancelled.is_set() and self.alive:
                now = self._clock()
                free = [one for one in self._places if one.rests_until <= now and one.running < self._room(one)]
                if free:
                    place = min(free, key=lambda one: (one.failures > 0, one.running))
                    place.running += 1
                    return place
                busy = any(one.running for one in self._places)
                if not busy and now - self._good > self._patience.most:
                    self.alive = False
                    self._changed.notify_all()
                    return None
                # While something runs its end wakes us; else the end of somebody's rest is what comes next.
                resting = [one.rests_until - now for one in self._places if one.rests_until > now]
                self._changed.wait(min(resting) if resting else None)
        return None

    def _room(self, place: _Place) -> int:
        return 1 if place.out else self._parallel

    def _settle(self, place: _Place, fault: LocalspecError | None) -> None:
        """Its place is free again, and the server is known better."""
        with self._changed:
            place.running -= 1
            if fault is None or isinstance(fault, UsageError):
                self._good = self._clock()
                back, place.out, place.failures = place.out, False, 0
                if back:
                    self._say(f"{place.url} answers again")
            elif isinstance(fault, Busy):
                self._rest(place, fault.after)
            elif isinstance(fault, Broken):
                self._rest(place, None)
            else:
                self._leave_out(place, fault)
            self._changed.notify_all()

    def _leave_out(self, place: _Place, fault: LocalspecError) -> None:
        """Once, however many of its answers are lost with it."""
        if not place.out:
            self._say(f"{fault.message}: it is left out for now")
        if not place.out or place.rests_until <= self._clock():
            self._rest(place, None)
        place.out = True

    def _rest(self, place: _Place, seconds: float | None) -> None:
        place.failures += 1
        rest = self._patience.rest(place.failures) if seconds is None else seconds
        place.rests_until = max(place.rests_until, self._clock() + rest)


def _model(info: EngineInfo) -> str:
    """Its name; some servers tell the path of its file, each of its own machine."""
    return PurePath(info.target).name if info.target.endswith(".gguf") else info.target


def _at_once(events: list[Event]) -> list[Event]:
    """An answer's tokens as one event, with the guesses that only its end tells of."""
    tokens = [event for event in events if isinstance(event, Tokens)]
    last = events[-1]
    if not isinstance(last, Finished) or not tokens:
        return events
    text = "".join(event.text for event in tokens)
    infos = tuple(info for event in tokens for info in event.tokens)
    others = [event for event in events if not isinstance(event, Tokens)]
    return [*others[:-1], Tokens(tokens[0].request, text, infos, _whole(last.n, last.stats)), last]


def _whole(n: int, stats: SpecStats) -> StepStats:
    return StepStats(stats.draft_n, stats.tested, stats.accepted, n, 0, stats.t_draft, stats.t_verify, stats.t_host)
