"""The noise is uniform, independent between its keys, and a pure function."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from scipy import stats

from localspec.sampling import Stream, gumbel, uniform

IDS = np.arange(20_000, dtype=np.int32)


@pytest.mark.parametrize("seed", [0, 1, 2**63, 2**64 - 1])
def test_uniform_over_ids(seed: int) -> None:
    u = uniform(seed, Stream.TARGET, 0, IDS)
    assert u.min() > 0
    assert u.max() < 1
    assert stats.kstest(u, "uniform").pvalue > 1e-3


def test_uniform_over_indices_seeds_and_salts() -> None:
    by_index = [uniform(0, Stream.TARGET, i, (7,))[0] for i in range(4000)]
    by_seed = [uniform(s, Stream.ACCEPT, 3, (0,))[0] for s in range(4000)]
    by_salt = [uniform(5, Stream.DRAFT, 3, (11,), s)[0] for s in range(4000)]
    for u in (by_index, by_seed, by_salt):
        assert stats.kstest(u, "uniform").pvalue > 1e-3
        assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 0.06


def test_gumbel_has_its_distribution() -> None:
    assert stats.kstest(gumbel(3, Stream.DRAFT, 9, IDS), "gumbel_r").pvalue > 1e-3


def test_keys_do_not_share_noise() -> None:
    """Neighbouring keys, and keys whose words are swapped, are uncorrelated; so are two bits apart."""
    keys = [
        (0, Stream.TARGET, 0, 0),
        (1, Stream.TARGET, 0, 0),
        (0, Stream.TARGET, 1, 0),
        (0, Stream.TARGET, 0, 1),
        (0, Stream.DRAFT, 0, 0),
        (0, Stream.ACCEPT, 0, 0),
        (0, Stream.RESIDUAL, 0, 0),
        (1, Stream.TARGET, 1, 0),
        (2**32, Stream.TARGET, 0, 0),
        (2**64 - 1, Stream.TARGET, 0, 0),
    ]
    rows = [uniform(seed, stream, index, IDS, salt) for seed, stream, index, salt in keys]
    for a, b in itertools.combinations(rows, 2):
        assert abs(np.corrcoef(a, b)[0, 1]) < 0.03
        assert not np.intersect1d(a, b).size


def test_neighbouring_tokens_are_independent() -> None:
    u = uniform(0, Stream.TARGET, 0, IDS)
    for lag in (1, 2, 64):
        table = np.histogram2d(u[:-lag], u[lag:], bins=8)[0]
        assert stats.chisquare(table.ravel()).pvalue > 1e-3


def test_a_question_has_one_answer_in_any_order_and_company() -> None:
    whole = gumbel(42, Stream.TARGET, 5, IDS[:100])
    order = list(range(100))
    random.Random(0).shuffle(order)
    for token in order:
        assert gumbel(42, Stream.TARGET, 5, (token,))[0] == whole[token]


def test_seed_has_64_bits() -> None:
    values = {float(uniform(seed, Stream.TARGET, 0, (0,))[0]) for seed in (0, *(1 << b for b in range(64)))}
    assert len(values) == 65
