"""What a pass is believed to cost, after passes whose true cost is known."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from localspec.control import CostCurve

Cost = Callable[[int, int], float]  # seconds by rows and cells
POINTS = {1: 1.0, 2: 1.2, 4: 1.5, 8: 2.0}


def watched(cost: Cost, change: float, rows: list[int], *, cells: int, cell_s: float | None = None) -> CostCurve:
    """A curve that has seen passes of these rows, a token of context more each time."""
    rng = random.Random(1)
    curve = CostCurve(POINTS, cell_s=cell_s)
    before = 1
    for step, n in enumerate(rows):
        seconds = cost(n, cells + step) * rng.lognormvariate(0, 0.02) + change * (n != before)
        curve.observe(n, seconds, cells + step)
        before = n
    return curve


def flat(rows: int, cells: int) -> float:
    return 1.0 + 0.2 * (rows - 1) if rows <= 2 else 1.2 + 0.15 * (rows - 2)


def test_what_it_costs_to_come_back_to_plain_decoding_is_learnt() -> None:
    curve = watched(flat, 0.12, [1, 1, 1, 2] * 40, cells=16)
    assert curve.change_s == pytest.approx(0.12, abs=0.04)


def test_where_a_change_is_free_none_is_believed() -> None:
    assert watched(flat, 0.0, [1, 1, 1, 2] * 40, cells=16).change_s < 0.03


def test_what_rows_pay_for_a_short_context_is_known_from_the_start() -> None:
    """And longer ones that say otherwise are believed."""

    def cost(rows: int, cells: int) -> float:
        return flat(rows, cells) + rows * 0.0012 * cells

    curve = watched(cost, 0.0, [1] * 60, cells=250, cell_s=0.0012)
    assert curve.seconds(4) / curve.seconds(1) == pytest.approx(cost(4, 310) / cost(1, 310), rel=0.05)
    for cells in (2000, 4000):
        for step in range(20):
            curve.observe(1, flat(1, 0) + 0.0006 * (cells + step), cells + step)
    assert curve.seconds(4) / curve.seconds(1) == pytest.approx((1.5 + 4 * 2.4) / (1.0 + 2.4), rel=0.1)


def test_what_two_rows_taught_is_half_believed_of_three() -> None:
    def cost(rows: int, cells: int) -> float:
        return flat(rows, cells) * (1.5 if rows > 1 else 1.0)

    curve = watched(cost, 0.0, [1, 1, 1, 2] * 40, cells=16)
    assert curve.seconds(2) / curve.seconds(1) == pytest.approx(1.8, rel=0.05)
    assert 1.1 < curve.seconds(3) / curve.seconds(1) / 1.35 < 1.4
