"""Events on their way to a slow reader."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from queue import SimpleQueue

from localspec.types import Event, Failed, Finished, Prefill, StepStats, Tokens

#: Events that wait for a reader before they are thinned out.
LIMIT = 256


class Inbox:
    """Events of one request: one thread puts, one takes.

    A reader that is more than `LIMIT` events behind gets fewer and larger ones: neighbours are put together in pairs,
    so that memory is bounded by the answer itself and the engine never waits. Nothing that adds up is lost: texts
    and tokens are joined, counts and times of steps are summed (the newest tree is kept). Only the number of events
    shrinks; `Finished` has the exact totals. Steps that were granted have a `Paced` between them, and stay single.

    Locks and queues are those written in C: an interrupt (ctrl-c) in the reader's thread finds them taken or free,
    never in between.
    """

    def __init__(self) -> None:
        self.number = 0  # the engine's number of the request, once it is known
        self._events: deque[Event] = deque()
        self._last: Finished | Failed | None = None
        self._lock = threading.Lock()
        self._wake: SimpleQueue[None] = SimpleQueue()

    @property
    def over(self) -> bool:
        """The last event is here, taken or not."""
        return self._last is not None

    def put(self, event: Event) -> None:
        """Nothing comes after `Finished` or `Failed`."""
        with self._lock:
            if self._last is not None:
                return
            if isinstance(event, Finished | Failed):
                self._last = event
            else:
                self._events.append(event)
                if len(self._events) > LIMIT:
                    self._events = _thinned(self._events)
        if self._wake.empty():
            self._wake.put(None)

    def events(self) -> Iterator[Event]:
        """What is left, and the last event in any case."""
        while True:
            event = self.take()
            yield event
            if isinstance(event, Finished | Failed):
                return

    def take(self) -> Event:
        """Waits for the next event. The last one is kept and given again: it must not get lost in an interrupt."""
        while True:
            with self._lock:
                if self._events:
                    return self._events.popleft()
                if self._last is not None:
                    return self._last
            self._wake.get()


def _thinned(events: deque[Event]) -> deque[Event]:
    """About half as many: each event is joined with the one before it, unless that is a joint already."""
    thin: deque[Event] = deque()
    joint = True
    for event in events:
        both = None if joint else _joined(thin[-1], event)
        joint = both is not None
        if both is None:
            thin.append(event)
        else:
            thin[-1] = both
    return thin


def _joined(first: Event, second: Event) -> Event | None:
    """One event for two neighbours; ``None`` where both are needed."""
    match first, second:
        case Prefill(), Prefill():
            return second
        case Tokens(), Tokens():
            step = _summed(first.step, second.step)
            return Tokens(first.request, first.text + second.text, first.tokens + second.tokens, step)
    return None


def _summed(first: StepStats | None, second: StepStats | None) -> StepStats | None:
    return first or second if first is None or second is None else first + second
