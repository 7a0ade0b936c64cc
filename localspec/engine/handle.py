"""What ``submit`` gives back: the events of one request, as an iterator."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from localspec.types import Event, Failed, Finished


class Handle:
    """Iterate it to drive the engine and get the events. Leaving the loop early cancels the request."""

    def __init__(
        self, number: int, events: deque[Event], pump: Callable[[], None], cancel: Callable[[], None]
    ) -> None:
        self.number = number
        self._events = events
        self._pump = pump
        self._cancel = cancel

    def __iter__(self) -> Iterator[Event]:
        try:
            while True:
                while not self._events:
                    self._pump()
                event = self._events.popleft()
                if isinstance(event, Finished | Failed):
                    yield event
                    return
                yield event
        finally:
            self._cancel()

    def cancel(self) -> None:
        """From any thread: stops the answer within one pass; `Finished` with reason ``cancelled`` follows."""
        self._cancel()
