"""Mirostat and adaptive-p against slow loops over whole texts; what is learnt, and from what."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from localspec.sampling import SamplerState
from localspec.types import DEFAULT_SAMPLERS, SamplingParams
from tests.sampling.reference import Scores, probabilities

Row = NDArray[np.float32]
VOCAB = 30
MIROSTAT = SamplingParams(mirostat=2)
ADAPTIVE = SamplingParams(samplers=("min_p", "adaptive_p", "temperature"), adaptive_target=0.3, min_p=0.02)


def start(params: SamplingParams, seed: int = 0) -> SamplerState:
    return SamplerState.start(params, seed=seed, prompt=(1, 2), end_tokens=(0,), n_ctx=64)


def random_row(seed: int) -> Row:
    return (np.random.default_rng(seed).normal(size=VOCAB) * 3).astype(np.float32)


def fetched(row: Row) -> Callable[[], Row]:
    return lambda: row


def mirostat_laws(rows: Sequence[Row], tokens: Sequence[int | None], params: SamplingParams) -> list[Scores]:
    """The law at each position; a token of ``None`` is the likeliest."""
    mu, laws = 2 * params.mirostat_tau, []
    for row, token in zip(rows, tokens, strict=True):
        scores = {i: float(x) / params.temperature for i, x in enumerate(row)}
        mass = probabilities(scores)
        best_first = sorted(scores, key=lambda i: -scores[i])
        kept = [i for i in best_first if -math.log2(mass[i]) <= mu] or best_first[:1]
        laws.append(probabilities({i: scores[i] for i in kept}))
        token = best_first[0] if token is None else token
        mu -= params.mirostat_eta * (-math.log2(laws[-1][token]) - params.mirostat_tau)
    return laws


def adaptive_laws(rows: Sequence[Row], tokens: Sequence[int], params: SamplingParams) -> list[Scores]:
    total, weight = params.adaptive_target / (1 - params.adaptive_decay), 1 / (1 - params.adaptive_decay)
    laws = []
    for row, token in zip(rows, tokens, strict=True):
        bound = float(row.max()) + math.log(params.min_p)
        mass = probabilities({i: float(x) / params.temperature for i, x in enumerate(row) if x >= bound})
        target = min(max(2 * params.adaptive_target - total / weight, 0), 1)
        distance = {i: abs(p - target) / 0.3 for i, p in mass.items()}
        laws.append(probabilities({i: 5 - 10 * d * d / (1 + d) for i, d in distance.items()}))
        total = mass[token] + params.adaptive_decay * total
        weight = 1 + params.adaptive_decay * weight
    return laws


def same(state: SamplerState, row: Row, want: Scores) -> None:
    law = state.law(row)
    assert law.ids.tolist() == sorted(want)
    np.testing.assert_allclose(np.exp(law.logp), [want[i] for i in sorted(want)], rtol=1e-6)
    assert (state.draft_law(row).logp == law.logp).all()
    assert state.draw(row) == law.draw(state.noise(law.ids)) == state.guesses(row, 2)[0][0]
    assert [state.residual(row, None, 0).chance(i) for i in law.ids.tolist()] == pytest.approx(np.exp(law.logp))


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.5, 2.0, 5.0]), st.sampled_from([0.0, 0.1, 1.0]))
def test_mirostat(seed: int, tau: float, eta: float) -> None:
    params = replace(MIROSTAT, mirostat_tau=tau, mirostat_eta=eta)
    state, rows = start(params, seed), [random_row(seed + i) for i in range(12)]
    tokens: list[int] = []
    for i, row in enumerate(rows):
        same(state, row, mirostat_laws(rows[: i + 1], [*tokens, None], params)[i])
        tokens.append(state.draw(row))
        state = state.advance(tokens[-1], fetched(row))


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.3, 1.0]), st.sampled_from([0.0, 0.9, 0.99]))
def test_adaptive_p(seed: int, target: float, decay: float) -> None:
    params = replace(ADAPTIVE, adaptive_target=target, adaptive_decay=decay)
    state, rows = start(params, seed), [random_row(seed + i) for i in range(12)]
    tokens: list[int] = []
    for i, row in enumerate(rows):
        token = state.draw(row)
        same(state, row, adaptive_laws(rows[: i + 1], [*tokens, token], params)[i])
        tokens.append(token)
        state = state.advance(token, fetched(row))


def surprise(params: SamplingParams, n: int) -> list[float]:
    state, bits = start(params, 5), []
    for i in range(n):
        row = random_row(i)
        token = state.draw(row)
        bits.append(-state.law(row).logp[state.law(row).ids.tolist().index(token)] / math.log(2))
        state = state.advance(token, fetched(row))
    return bits


@pytest.mark.parametrize("tau", [0.5, 1.0, 1.5])
def test_mirostat_keeps_to_its_target(tau: float) -> None:
    bits = surprise(replace(MIROSTAT, temperature=1.5, mirostat_tau=tau), 600)
    assert np.mean(bits[100:]) == pytest.approx(tau, abs=0.1)


def test_with_mirostat_the_other_samplers_are_out_of_use() -> None:
    others = replace(
        MIROSTAT,
        top_k=1,
        min_p=0.9,
        repeat_penalty=3.0,
        dry_multiplier=9.0,
        xtc_probability=1.0,
        dynatemp_range=0.5,
        top_n_sigma=0.1,
        adaptive_target=0.5,
        samplers=("top_k", "adaptive_p"),
    )
    row = random_row(3)
    assert (start(others).law(row).logp == start(MIROSTAT).law(row).logp).all()
    assert start(replace(others, temperature=0)).draw(row) == int(row.argmax())
    assert start(replace(others, logit_bias=((4, 99.0),))).draw(row) == 4


def test_adaptive_p_is_on_where_it_is_named_and_has_a_target() -> None:
    row = random_row(3) / np.float32(3)
    base = SamplingParams(adaptive_target=0.3)
    for off in (
        base,
        replace(base, adaptive_target=-1.0, samplers=(*DEFAULT_SAMPLERS, "adaptive_p")),
    ):
        assert (start(off).law(row).logp == start(SamplingParams()).law(row).logp).all()
    for samplers in (("adaptive_p", *DEFAULT_SAMPLERS), (*DEFAULT_SAMPLERS, "adaptive_p")):
        on = start(replace(base, samplers=samplers))
        assert (on.law(row).logp != start(SamplingParams()).law(row).logp).any()
    assert start(replace(ADAPTIVE, temperature=0)).draw(row) == int(row.argmax())


@pytest.mark.parametrize("params", [MIROSTAT, ADAPTIVE], ids=["mirostat", "adaptive_p"])
def test_states_of_guesses_learn_nothing_and_no_state_changes(params: SamplingParams) -> None:
    row, after = random_row(1), random_row(2)
    state = start(params)
    law, token = state.law(row), state.draw(row)
    learnt, guessed = state.advance(token, lambda: row), state.advance(token)
    assert (state.law(row).logp == law.logp).all()
    assert guessed.learner == state.learner != learnt.learner
    assert (guessed.law(after).logp == state.law(after).logp).all()


def test_rows_are_fetched_by_those_that_learn_alone() -> None:
    def never() -> Row:
        raise AssertionError("a row was fetched")

    for params in (
        SamplingParams(),
        replace(MIROSTAT, temperature=0),
        SamplingParams(dry_multiplier=1.0, xtc_probability=0.5, dynatemp_range=0.5),
    ):
        assert start(params).advance(3, never).index == 1
    with pytest.raises(AssertionError, match="fetched"):
        start(MIROSTAT).advance(3, never)
