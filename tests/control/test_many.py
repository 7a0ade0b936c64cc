"""The controller with many sequences at a time, on the curve of a GPU: as load grows it guesses less, and is never the
slower way."""

from __future__ import annotations

import pytest

from localspec.control import AutoController, FixedController
from localspec.types import SpecParams
from tests.control.simulation import CURVES, Guesser, Run, alike, measured, run_many, source

STEPS = 80
ALPHA = 0.75


def answers(sequences: int, *, passes: bool) -> list[dict[str, Guesser]]:
    return alike(sequences, [ALPHA] * 9 * STEPS, passes=passes)


def auto(mine: list[dict[str, Guesser]]) -> Run:
    cost = CURVES["GPU"]
    return run_many(AutoController(measured(cost)), mine, cost, STEPS, spec=SpecParams(depth=12, nodes=16), noise=0.02)


def fixed(mine: list[dict[str, Guesser]], depth: int) -> Run:
    spec = SpecParams(depth=depth, nodes=max(depth, 1), mode="fixed" if depth else "off")
    return run_many(FixedController(), mine, CURVES["GPU"], STEPS, spec=spec, noise=0.02)


@pytest.mark.parametrize("passes", [True, False], ids=["draft model", "n-grams"])
@pytest.mark.parametrize("sequences", [2, 8, 32, 128])
def test_no_way_is_faster(sequences: int, passes: bool) -> None:
    mine = answers(sequences, passes=passes)
    best = max(fixed(mine, depth).speed for depth in (0, 3))
    assert auto(mine).speed >= 0.98 * best


def test_the_more_run_the_less_is_guessed() -> None:
    each = [auto(answers(n, passes=True)).guesses / n for n in (1, 8, 64)]
    assert each == sorted(each, reverse=True)
    assert each[0] > 3 * each[-1]


def test_who_was_not_asked_has_learnt_nothing() -> None:
    """Looks into the past that find nothing for one conversation do not keep another from looking."""
    mine = answers(16, passes=False)
    assert auto(mine).speed >= 0.98 * max(fixed(mine, depth).speed for depth in (1, 3, 5))


def test_a_level_is_paid_by_those_who_share_it() -> None:
    """A few sure sequences among many unsure ones do not make everybody wait for their deep guesses."""
    sure, unsure = 0.97, 0.3
    mine: list[dict[str, Guesser]] = [
        {"one": source([sure if seed < 2 else unsure] * 13 * STEPS, seed, pass_s=0.4, ask_s=0.0)} for seed in range(32)
    ]
    assert auto(mine).speed >= 0.96 * max(fixed(mine, depth).speed for depth in (0, 1, 3))  # trials cost something
