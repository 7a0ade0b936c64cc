"""What ``submit`` gives back: the events of one request, as an iterator."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from localspec.types import Event, Failed, Finished


class Handle:
    """Iterate it to drive the engine and get the events. Leaving the loop early cancels the request."""

    def __init__(
        self,
        number: int,
        events: deque[Event],
        pump: Callable[[], None],
        cancel: Callable[[], None],
        grant: Callable[[int | None], None],
    ) -> None:
        self.number = number
        self._events = events
        self._pump = pump
        self._cancel = cancel
        self._grant = grant
        self._over = False

    def __iter__(self) -> Iterator[Event]:
        try:
            while not self._over:
                while not self._events:
                    self._pump()
                yield self._next()
        finally:
            self._cancel()

    def cancel(self) -> None:
        """From any thread: stops the answer within one pass; `Finished` with reason ``cancelled`` follows."""
        self._cancel()

    def grant(self, steps: int | None) -> None:
        """From any thread: the answer may make so many verify steps more, and then waits; ``None``: to its end. On one
        that runs without a limit, 0 makes it wait where it is."""
        self._grant(steps)

    def drain(self) -> list[Event]:
        """The events that are ready, for an owner of the engine that calls `Engine.step` itself."""
        return [self._next() for _ in range(len(self._events))]

    def _next(self) -> Event:
        event = self._events.popleft()
        self._over = isinstance(event, Finished | Failed)
        return event
