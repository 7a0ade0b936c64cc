"""Hard limits of load: they hold, and they do not flutter at their edge."""

from __future__ import annotations

import pytest

from localspec.control import LoadGuard
from localspec.control.load import Limit


@pytest.mark.parametrize(("most", "back"), [(1, 1), (2, 2), (4, 3), (8, 6), (48, 36)])
def test_a_limit_has_a_way_back(most: int, back: int) -> None:
    limit = Limit(most)
    assert not any(limit.look(n) for n in range(most + 1))
    assert limit.look(most + 1)
    assert all(limit.look(n) for n in range(most, back, -1))
    assert not limit.look(back)
    assert not limit.look(most)


def test_nought_is_no_limit() -> None:
    guard = LoadGuard()
    guard.look(10_000, 10_000)
    assert (guard.allows, guard.why) == (True, "")


def test_it_says_why() -> None:
    guard = LoadGuard(most_running=2, most_waiting=5)
    guard.look(2, 6)
    assert not guard.allows
    assert "more than 5 requests wait (--spec-max-queue)" in guard.why
    guard.look(3, 0)
    assert "more than 2 answers run at a time (--spec-max-concurrency)" in guard.why
    guard.look(1, 0)
    assert guard.allows
