"""How far a batch is, and how fast."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from localspec.report import speed
from localspec.types import StepStats, Timings


@dataclass(frozen=True, slots=True)
class Reading:
    """``total`` lines (``None``: not known), of which ``done`` are answered, ``failed`` among them; ``earlier`` of them
    by runs before this one. Sums are of this run; ``seconds`` run from its first token."""

    total: int | None
    done: int
    failed: int
    earlier: int
    tokens: int
    draft_n: int
    accepted: int
    prompt_n: int
    cache_n: int
    seconds: float

    @property
    def share(self) -> float | None:
        return self.done / self.total if self.total else None

    @property
    def left_s(self) -> float | None:
        """Seconds that the rest takes, if it goes on so."""
        mine = self.done - self.earlier
        if self.total is None or not mine:
            return None
        return self.seconds / mine * (self.total - self.done)

    @property
    def progress(self) -> str:
        """``12/50 lines · 61 tok/s · accepted 71 % · 2 failed · 1:23 left``"""
        parts = [f"{self.done}/{self.total} lines" if self.total is not None else f"{self.done} lines", *self._rates()]
        if self.failed:
            parts.append(f"{self.failed} failed")
        if self.left_s is not None and self.done != self.total:
            parts.append(f"{clock(self.left_s)} left")
        return " · ".join(parts)

    @property
    def summary(self) -> str:
        """What came of this run, on one line."""
        mine, were = self.done - self.earlier, "was" if self.earlier == 1 else "were"
        parts = [f"{mine} line{'s' * (mine != 1)} in {clock(self.seconds)}", f"{self.tokens} tok", *self._rates()]
        if self.cache_n:
            parts.append(f"{self.cache_n}/{self.prompt_n} prompt tokens reused")
        if self.earlier:
            parts.append(f"{self.earlier} {were} done before")
        if self.failed:
            parts.append(f"{self.failed} of {self.done} failed")
        return " · ".join(parts)

    def _rates(self) -> list[str]:
        parts = [speed(self.tokens / self.seconds)] if self.tokens and self.seconds > 0 else []
        if self.draft_n:
            parts.append(f"accepted {100 * self.accepted / self.draft_n:.0f} % ({self.accepted}/{self.draft_n})")
        return parts


class Meter:
    """Counts while answers come; any thread may add.

    Args:
        total: lines of the input, if they can be counted.
        earlier: those that earlier runs have answered, ``failed`` of them with an error.
    """

    def __init__(
        self, total: int | None, *, earlier: int = 0, failed: int = 0, timer: Callable[[], float] = time.monotonic
    ) -> None:
        self._lock = threading.Lock()
        self._timer = timer
        self._began: float | None = None
        self._total, self._earlier, self._failed_before = total, earlier, failed
        self._done = self._failed = 0
        self._tokens = self._draft_n = self._accepted = self._prompt_n = self._cache_n = 0

    def started(self) -> None:
        with self._lock:
            self._began = self._timer() if self._began is None else self._began

    def stepped(self, step: StepStats) -> None:
        with self._lock:
            self._tokens += step.emitted
            self._draft_n += step.draft_n
            self._accepted += step.accepted

    def answered(self, timings: Timings) -> None:
        with self._lock:
            self._done += 1
            self._prompt_n += timings.prompt_n
            self._cache_n += timings.cache_n

    def failed(self) -> None:
        with self._lock:
            self._done += 1
            self._failed += 1

    def read(self) -> Reading:
        with self._lock:
            return Reading(
                total=self._total,
                done=self._earlier + self._done,
                failed=self._failed_before + self._failed,
                earlier=self._earlier,
                tokens=self._tokens,
                draft_n=self._draft_n,
                accepted=self._accepted,
                prompt_n=self._prompt_n,
                cache_n=self._cache_n,
                seconds=0.0 if self._began is None else self._timer() - self._began,
            )


def clock(seconds: float) -> str:
    """``0:07``, ``12:34``, ``1:02:03``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
