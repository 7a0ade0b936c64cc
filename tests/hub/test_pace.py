"""Rate and rest of a download."""

from __future__ import annotations

import pytest

from localspec.hub.pace import WINDOW, Pace


def test_the_rate_is_that_of_the_last_seconds() -> None:
    pace = Pace(1000, 100, 10.0)
    assert (pace.share, pace.rate, pace.left) == (0.1, None, None)
    pace.add(100, 11.0)
    assert (pace.done, pace.rate, pace.left) == (200, 100.0, 8.0)
    for second in range(12, 30):
        pace.add(10, float(second))
    assert pace.rate == pytest.approx(10.0)
    assert pace.done == 380
    pace.add(0, 29.0 + WINDOW)
    assert pace.rate == pytest.approx(0.0)
    assert pace.left is None


def test_what_begins_anew_has_no_rate_yet() -> None:
    pace = Pace(1000, 0, 0.0)
    pace.add(500, 1.0)
    pace.add(-500, 2.0)
    assert (pace.done, pace.rate) == (0, None)


def test_a_size_that_nobody_knows() -> None:
    pace = Pace(None, 0, 0.0)
    pace.add(500, 1.0)
    assert (pace.share, pace.rate, pace.left) == (None, 500.0, None)
