"""Testing guesses in turn leaves the target's distribution as it was: by enumeration, not by chance."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from localspec.sampling import Law, ResidualDraw, SamplerState
from localspec.types import SamplingParams

VOCAB = 5
weights = st.lists(st.integers(0, 20), min_size=VOCAB, max_size=VOCAB).filter(any)


def law_of(weights: Sequence[float]) -> Law:
    mass = np.array(weights, dtype=np.float64)
    ids = np.flatnonzero(mass).astype(np.int32)
    return Law(ids, np.log(mass[ids] / mass.sum()))


def residual(p: Law, q: Law | None) -> ResidualDraw:
    return ResidualDraw(p, q, seed=0, index=0, node=0)


def reject(left: ResidualDraw, token: int) -> ResidualDraw:
    """What is left after ``token`` failed, whatever the noise of this seed says."""
    left = copy.deepcopy(left)
    left.reject(token)
    return left


def emitted(left: ResidualDraw, q: dict[int, float], tests: int) -> NDArray[np.float64]:
    """Distribution of the token that goes out, summed over all candidates and outcomes. ``q`` is the law of
    the next candidate."""
    out = np.zeros(VOCAB)
    if tests == 0 or not q:
        law = left.left
        out[law.ids] = np.exp(law.logp)
        return out
    for token, chance in q.items():
        stands = left.chance(token)
        out[token] += chance * stands
        if stands < 1:
            rest = {t: p / (1 - chance) for t, p in q.items() if t != token}
            out += chance * (1 - stands) * emitted(reject(left, token), rest, tests - 1)
    return out


def dense(law: Law) -> NDArray[np.float64]:
    return np.array([law.p(token) for token in range(VOCAB)])


@given(weights, weights, st.integers(0, 3))
def test_candidates_drawn_without_replacement(p: list[int], q: list[int], tests: int) -> None:
    target, draft = law_of(p), law_of(q)
    law = dict(zip(draft.ids.tolist(), np.exp(draft.logp).tolist(), strict=True))
    np.testing.assert_allclose(emitted(residual(target, draft), law, tests), dense(target), atol=1e-9)


@given(weights, st.permutations(range(VOCAB)), st.integers(0, VOCAB))
def test_candidates_chosen_without_chance(p: list[int], order: list[int], tests: int) -> None:
    target, left, reach, out = law_of(p), residual(law_of(p), None), 1.0, np.zeros(VOCAB)
    for token in order[:tests]:
        stands = left.chance(token)
        out[token] += reach * stands
        reach *= 1 - stands
        if reach < 1e-12:
            break
        left = reject(left, token)
    else:
        out += reach * dense(left.left)
    np.testing.assert_allclose(out, dense(target), atol=1e-9)


@given(weights)
def test_the_same_law_is_always_accepted(p: list[int]) -> None:
    law = law_of(p)
    assert all(residual(law, law).chance(token) == 1 for token in law.ids.tolist())


def test_rounding_that_leaves_nothing_keeps_the_target() -> None:
    """p below q everywhere by a hair: the residual would be all zero."""
    p = law_of([1, 1, 1, 0, 0])
    left = residual(p, Law(p.ids, p.logp + 1e-12))
    left.reject(1)
    np.testing.assert_allclose(dense(left.left), dense(p))


def test_tokens_that_the_target_bans() -> None:
    left = residual(law_of([0, 1, 3, 0, 0]), law_of([1, 0, 0, 1, 0]))
    assert left.chance(0) == left.chance(3) == 0
    assert not left.accepts(0, 0)
    assert not left.accepts(3, 1)
    np.testing.assert_allclose(dense(left.left), [0, 0.25, 0.75, 0, 0])


def test_a_token_the_law_cannot_have_given_is_an_error() -> None:
    left = residual(law_of([1, 1, 1, 1, 1]), law_of([10, 1, 0, 0, 0]))
    with pytest.raises(ValueError, match="not drawn"):
        left.accepts(2, 0)
    left.reject(0)
    with pytest.raises(ValueError, match="not drawn"):
        left.accepts(0, 1)


def test_greedy_target_takes_its_token_and_no_other() -> None:
    row = np.array([0.0, 1.0, 5.0, 1.0], dtype=np.float32)
    state = SamplerState.start(SamplingParams(temperature=0), seed=0, prompt=(), end_tokens=(), n_ctx=8)
    for law in (None, state.draft_law(row[::-1].copy())):
        left = state.residual(row, law, 0)
        assert [left.accepts(token, rank) for rank, token in enumerate((1, 3))] == [False, False]
        assert left.draw() == 2
        assert state.residual(row, law, 0).accepts(2, 0)


def test_tests_have_noise_of_their_own() -> None:
    """The noise of a test depends on position and rank, and the draw's is apart from that of all tests."""
    half, n = law_of([1, 1, 0, 0, 0]), 3000
    outcomes = np.array(
        [
            [
                ResidualDraw(half, None, seed=seed, index=index, node=0).accepts(0, rank)
                for index, rank in ((0, 0), (0, 1), (1, 0))
            ]
            + [ResidualDraw(half, None, seed=seed, index=0, node=0).draw() == 0]
            for seed in range(n)
        ]
    )
    assert np.abs(outcomes.mean(axis=0) - 0.5).max() < 0.04
    assert np.abs(np.corrcoef(outcomes.T) - np.eye(4)).max() < 0.08
