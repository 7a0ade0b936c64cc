"""Medians of pairs and their intervals, against answers that are known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from localspec.tools.stats import middle, spread


def test_equal_numbers_have_no_spread() -> None:
    found = spread([[2.0, 2.0], [2.0]])
    assert (found.median, found.low, found.high, found.least, found.most) == (2.0, 2.0, 2.0, 2.0, 2.0)


def test_the_median_is_that_of_all_numbers() -> None:
    found = spread([[1.0, 9.0, 2.0], [3.0, 4.0]])
    assert (found.median, found.least, found.most) == (3.0, 1.0, 9.0)
    assert found.least <= found.low <= found.median <= found.high <= found.most


def test_two_groups_of_one_number_give_the_interval_that_can_be_counted() -> None:
    """Four equally likely draws: both low, both high, and the mean twice."""
    found = spread([[1.0], [3.0]])
    assert (found.median, found.low, found.high) == (2.0, 1.0, 3.0)


def test_the_interval_is_that_of_scipy_where_each_group_has_one_number() -> None:
    numbers = np.random.default_rng(1).normal(1.5, 0.2, 25)
    theirs = stats.bootstrap((numbers,), np.median, method="percentile", n_resamples=9999, rng=2).confidence_interval
    found = spread([[number] for number in numbers])
    assert found.low == pytest.approx(theirs.low, abs=0.03)
    assert found.high == pytest.approx(theirs.high, abs=0.03)


def test_prompts_that_differ_widen_the_interval_more_than_rounds_do() -> None:
    """The same numbers, grouped otherwise: what repeats within a prompt says little about other prompts."""
    numbers = [1.0, 1.1, 2.0, 2.1, 3.0, 3.1]
    by_prompt = spread([numbers[i : i + 2] for i in (0, 2, 4)])
    mixed = spread([[number] for number in numbers])
    assert by_prompt.high - by_prompt.low > mixed.high - mixed.low


def test_an_interval_is_the_same_every_time() -> None:
    groups = [[1.0, 1.2], [1.5, 0.9], [1.1, 1.3]]
    assert spread(groups) == spread(groups)
    assert spread(groups) != spread(groups, seed=1)


def test_nothing_has_no_median() -> None:
    with pytest.raises(ValueError, match="a number"):
        spread([[], []])
    assert middle([None, None]) is None
    assert middle([3.0, None, 1.0]) == 2.0
