"""Verify steps that are granted one by one."""

from __future__ import annotations

import threading


class Pace:
    """How many verify steps an answer may make before it waits. Any thread may grant some; the engine's takes them.

    Args:
        steps: as `GenerationRequest.steps`.
    """

    def __init__(self, steps: int | None) -> None:
        self._lock = threading.Lock()
        self._left = steps
        self._said: int | None = None  # what the reader was told of it, and nothing has changed since

    @property
    def left(self) -> int | None:
        """Steps that may still be made; ``None``: no limit."""
        return self._left

    @property
    def waits(self) -> bool:
        """None is left, and the reader has been told."""
        with self._lock:
            return self._left == self._said == 0

    def grant(self, steps: int | None) -> None:
        """So many more, ``None``: all that come. After ``None`` they count from here: 0 stops it where it is."""
        with self._lock:
            self._left = None if steps is None else (self._left or 0) + max(steps, 0)
            self._said = None

    def take(self) -> None:
        """A step was made."""
        with self._lock:
            if self._left:  # the last one may have been taken back while it was made
                self._left -= 1
            self._said = None

    def news(self) -> int | None:
        """What the reader has to be told: how many are left. ``None``: nothing."""
        with self._lock:
            if self._left == self._said:
                return None
            self._said = self._left
            return self._left
