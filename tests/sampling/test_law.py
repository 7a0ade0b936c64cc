"""Look-ups, ranking and drawing without replacement."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from localspec.sampling import Law, Stream, gumbel

LAW = Law(np.array([2, 5, 9, 11], dtype=np.int32), np.log([0.2, 0.4, 0.3, 0.1]))


def test_p() -> None:
    assert [LAW.p(token) for token in (2, 5, 9, 11)] == pytest.approx([0.2, 0.4, 0.3, 0.1])
    assert [LAW.p(token) for token in (-1, 0, 3, 10, 12)] == [0.0] * 5
    assert Law.certain(4).p(4) == 1


def test_top() -> None:
    assert [token for token, _ in LAW.top(3)] == [5, 9, 2]
    assert [p for _, p in LAW.top(3)] == pytest.approx([0.4, 0.3, 0.2])
    assert len(LAW.top(9)) == 4
    assert LAW.top(0) == ()
    flat = Law(np.arange(6, dtype=np.int32), np.log(np.full(6, 1 / 6)))
    assert [token for token, _ in flat.top(3)] == [0, 1, 2]


def test_draws_are_draws_one_after_the_other() -> None:
    n, ids = 8000, LAW.ids.tolist()
    seen: dict[tuple[int, ...], int] = dict.fromkeys(itertools.permutations(ids, 2), 0)
    for seed in range(n):
        noise = gumbel(seed, Stream.DRAFT, 0, LAW.ids)
        pair = tuple(token for token, _ in LAW.draws(noise, 2))
        assert pair[0] == LAW.draw(noise)
        seen[pair] += 1
    expected = [n * LAW.p(a) * LAW.p(b) / (1 - LAW.p(a)) for a, b in seen]
    assert stats.chisquare(list(seen.values()), expected).pvalue > 1e-4
