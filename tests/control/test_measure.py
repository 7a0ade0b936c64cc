"""The cost curve, measured on a clock that only passes move."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from localspec.backends.base import Rows, Work
from localspec.backends.fake import FakeTarget, FakeVocab
from localspec.control.measure import measure


class Timed(FakeTarget):
    """A pass of n rows takes 1 + n / 10 seconds of two threads and ``cell_s`` more a row and cell, and ``lost`` more in
    which others run."""

    def __init__(self, lost: float = 0.0, cell_s: float = 0.0) -> None:
        super().__init__(FakeVocab(20), rows=128)
        self.now = self.burnt = 0.0
        self.lost, self.cell_s = lost, cell_s
        self.longest_read = 0

    def forward(self, work: Sequence[Work]) -> list[Rows]:
        seconds = 1.0
        for item in work:
            self.longest_read = max(self.longest_read, len(item.tree))
            seconds += len(item.tree) * (0.1 + self.cell_s * self.n_past(item.seq))
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


def in_context(target: Timed, budget_s: float) -> float:
    """Seconds of a pass of four rows at 1,000 cells, as they are believed after loading."""
    curve = measure(target, 16, threads=2, budget_s=budget_s, clock=lambda: target.now, cpu_clock=lambda: target.burnt)
    curve.observe(1, 1.1 + 1000 * target.cell_s, 1000)
    return curve.seconds(4)


def test_what_a_row_pays_for_its_context_is_measured() -> None:
    assert in_context(Timed(cell_s=0.002), budget_s=1000) == pytest.approx(1.4 + 4 * 1000 * 0.002)


def test_a_context_that_takes_long_to_read_is_not_read() -> None:
    slow = Timed(cell_s=0.002)
    in_context(slow, budget_s=1)
    quick = Timed(cell_s=0.002)
    in_context(quick, budget_s=1000)
    assert slow.longest_read < 128 <= quick.longest_read
