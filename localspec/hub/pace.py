"""How fast a file arrives, and how long the rest takes."""

from __future__ import annotations

from collections import deque

#: Seconds that the rate is taken over: longer, and a connection that got slower would still look fast.
WINDOW = 5.0


class Pace:
    """Bytes of one file.

    Args:
        size: of all of it; ``None``: not known.
        done: there at the start.
        now: seconds of some clock, which goes on in `add`.
    """

    def __init__(self, size: int | None, done: int, now: float) -> None:
        self.size = size
        self.done = done
        self._seen = deque([(now, done)])

    def add(self, count: int, now: float) -> None:
        """So many more, or fewer."""
        self.done += count
        if count < 0:  # it begins anew, and the rate with it
            self._seen.clear()
        self._seen.append((now, self.done))
        while len(self._seen) > 2 and self._seen[1][0] <= now - WINDOW:
            self._seen.popleft()

    @property
    def share(self) -> float | None:
        """0…1"""
        return min(self.done / self.size, 1.0) if self.size else None

    @property
    def rate(self) -> float | None:
        """Bytes a second, lately."""
        (begin, before), (end, after) = self._seen[0], self._seen[-1]
        return (after - before) / (end - begin) if end > begin else None

    @property
    def left(self) -> float | None:
        """Seconds for the rest, if it goes on so."""
        return (self.size - self.done) / self.rate if self.size and self.rate else None
