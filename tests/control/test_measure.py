"""The cost curve, measured on a clock that only passes move."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from localspec.backends.base import Rows, Work
from localspec.backends.fake import FakeTarget, FakeVocab
from localspec.control.measure import measure


class Timed(FakeTarget):
    """A pass of n rows takes 1 + n / 10 seconds of two threads, and ``lost`` more in which others run."""

    def __init__(self, lost: float) -> None:
        super().__init__(FakeVocab(20))
        self.now = self.burnt = 0.0
        self.lost = lost

    def forward(self, work: Sequence[Work]) -> list[Rows]:
        seconds = 1 + sum(len(item.tree) for item in work) / 10
        self.now += seconds + self.lost
        self.burnt += 2 * seconds
        return super().forward(work)


def relative(lost: float, threads: int, rows: int = 8) -> float:
    target = Timed(lost)
    curve = measure(target, 16, threads=threads, clock=lambda: target.now, cpu_clock=lambda: target.burnt)
    return curve.seconds(rows) / curve.seconds(1)


def test_a_quiet_machine_shows_what_rows_cost() -> None:
    assert relative(0.0, threads=2) == pytest.approx(1.8 / 1.1)


def test_beside_busy_neighbours_rows_do_not_look_free() -> None:
    """Waiting hides what rows cost: 31.8 of 31.1 seconds."""
    assert relative(30.0, threads=2) > 2
    assert relative(30.0, threads=0) < 1.1, "of a pass that waits for a device nothing can be said"
