"""Statistics add up: every field of them, without being named one by one."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from localspec.stats import StatsBook
from localspec.types import SourceStats, SpecStats, StepStats, TreeTrace

TREE, LATER = (TreeTrace((token,), (-1,), (1.0,), ("",), (0,)) for token in (1, 2))
FIELDS = [(kind, part.name) for kind in (StepStats, SpecStats) for part in fields(kind)]
#: Values that are no plain numbers: of the one, of the other, of both.
OTHERS: dict[str, tuple[Any, Any, Any]] = {
    "tree": (TREE, LATER, LATER),
    "accepted_at": ((1, 2), (10, 20, 30), (11, 22, 30)),
    "tested_at": ((1,), (), (1,)),
    "lengths": ((), (4, 5), (4, 5)),
    "by_source": (
        (SourceStats("a", 1, 2), SourceStats("b", 3, 4)),
        (SourceStats("b", 10, 20), SourceStats("c", 5, 6)),
        (SourceStats("a", 1, 2), SourceStats("b", 13, 24), SourceStats("c", 5, 6)),
    ),
}


def nothing(kind: type[Any]) -> Any:
    return SpecStats() if kind is SpecStats else StepStats(0, 0, 0, 0, 0, 0.0, 0.0, 0.0, t_plain=0.0)


@pytest.mark.parametrize(("kind", "name"), FIELDS)
def test_every_field_is_added_and_disturbs_no_other(kind: type[Any], name: str) -> None:
    one, other, both = OTHERS.get(name, (3, 4, 7))
    none = nothing(kind)
    assert replace(none, **{name: one}) + replace(none, **{name: other}) == replace(none, **{name: both})


def test_what_is_unknown_stays_unknown_and_a_tree_is_kept() -> None:
    known = replace(nothing(StepStats), t_plain=1.0, tree=TREE)
    unknown = replace(known, t_plain=None, tree=None)
    for both in (known + unknown, unknown + known):
        assert both == replace(known, t_plain=None)


def test_names_are_added_once() -> None:
    twice = SpecStats(by_source=(SourceStats("a", 1, 1), SourceStats("a", 2, 3)))
    assert (twice + SpecStats()).by_source == (SourceStats("a", 3, 4),)


def test_what_a_step_with_guesses_had_to_bring() -> None:
    """Two of them took 0.3 and 0.1 seconds, of 0.1 a plain token: 2 tokens each would have been as fast."""
    book, one = StatsBook(), ("a",)
    for t_verify, emitted, accepted in ((0.28, 3, 2), (0.08, 1, 0)):
        step = StepStats(2, accepted + 1, accepted, emitted, 0, 0.01, t_verify, 0.01, t_plain=emitted * 0.1)
        book.add(step, one * 2, one * accepted)
    book.add(StepStats(0, 0, 0, 1, 0, 0.0, 0.5, 0.0, t_plain=0.1), (), ())
    book.add(StepStats(1, 1, 0, 1, 0, 0.0, 0.5, 0.0, t_plain=None), one, ())
    stats = book.snapshot()
    assert stats.break_even == pytest.approx(2.0)
    assert (stats + SpecStats()).break_even == stats.break_even
    assert SpecStats().break_even is None
