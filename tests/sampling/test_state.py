"""The whole chain against a slow reference, position by position; draws, noise, immutability."""

from __future__ import annotations

import math
import pickle
import random
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from localspec.errors import LocalspecError, ModelFault
from localspec.sampling import Breakers, SamplerState, Stream, uniform
from localspec.types import DEFAULT_SAMPLERS, SamplingParams
from tests.sampling import reference

Row = NDArray[np.float32]
END = (3, 11)
VOCAB = 40
N_CTX = 24
OFF = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)


BREAKERS = ((5,), (7, 8), (7, 8, 9))


def start(params: SamplingParams, *, seed: int = 0, prompt: tuple[int, ...] = (1, 2, 2)) -> SamplerState:
    breakers = Breakers.of(BREAKERS)
    return SamplerState.start(params, seed=seed, prompt=prompt, end_tokens=END, n_ctx=N_CTX, breakers=breakers)


def random_row(seed: int, n: int = VOCAB) -> Row:
    return (np.random.default_rng(seed).normal(size=n) * 2).astype(np.float32)


params = st.builds(
    SamplingParams,
    temperature=st.sampled_from([-1.0, 0.0, 0.3, 0.8, 1.0, 1.7]),
    top_k=st.sampled_from([0, 1, 5, 20, 100]),
    top_p=st.sampled_from([0.0, 0.4, 0.9, 1.0, 3.0]),
    min_p=st.sampled_from([0.0, 0.05, 0.4, 1.0]),
    typical_p=st.sampled_from([0.2, 0.7, 1.0]),
    repeat_penalty=st.sampled_from([1.0, 1.3, 0.8]),
    frequency_penalty=st.sampled_from([0.0, 0.5, -0.5]),
    presence_penalty=st.sampled_from([0.0, 0.7]),
    repeat_last_n=st.sampled_from([-1, 0, 1, 4, 64]),
    dry_multiplier=st.sampled_from([0.0, 0.8, 40.0]),
    dry_base=st.sampled_from([1.0, 1.75]),
    dry_allowed_length=st.sampled_from([0, 1, 2]),
    dry_penalty_last_n=st.sampled_from([-1, 0, 3, 64]),
    top_n_sigma=st.sampled_from([-1.0, 0.0, 0.7, 2.0]),
    xtc_probability=st.sampled_from([0.0, 0.5, 1.0]),
    xtc_threshold=st.sampled_from([0.0, 0.02, 0.1, 0.6]),
    dynatemp_range=st.sampled_from([0.0, 0.0, 0.5, 2.0]),
    dynatemp_exponent=st.sampled_from([0.5, 1.0, 3.0]),
    logit_bias=st.sampled_from([(), ((5, 4.0), (2, -math.inf), (5, 1.0)), ((0, -3.0),)]),
    ignore_eos=st.booleans(),
    min_tokens=st.sampled_from([0, 2, 9]),
    samplers=st.one_of(
        st.just(DEFAULT_SAMPLERS), st.permutations(DEFAULT_SAMPLERS).map(lambda names: tuple(names[:7]))
    ),
)


@given(params, st.integers(0, 10**6))
def test_chain_equals_reference_at_every_position(params: SamplingParams, seed: int) -> None:
    rng = random.Random(seed)
    few = rng.choice((4, 12, VOCAB))  # of few tokens there are repetitions
    prompt = tuple(rng.randrange(few) for _ in range(rng.randrange(30)))
    state = start(params, seed=seed, prompt=prompt)
    output: list[int] = []
    for position in range(4):
        row = random_row(seed + position)
        coin = uniform(seed, Stream.XTC, position, (0,))[0] <= params.xtc_probability
        want = reference.law(
            row,
            params,
            prompt=prompt,
            output=output,
            end_tokens=END,
            n_ctx=N_CTX,
            breakers=BREAKERS,
            coin=bool(coin),
        )
        law = state.law(row)
        assert law.ids.tolist() == sorted(want)
        np.testing.assert_allclose(np.exp(law.logp), [want[i] for i in sorted(want)], rtol=1e-4, atol=1e-9)
        assert state.draw(row) in want
        token = rng.randrange(few)
        state, output = state.advance(token), [*output, token]


ONE_BY_ONE: list[dict[str, Any]] = [
    {"logit_bias": ((7, -math.inf),)},
    {"logit_bias": ((7, -100.0),)},
    {"ignore_eos": True},
    {"min_tokens": 3},
    {"repeat_penalty": 1.3},
    {"frequency_penalty": 1.3},
    {"presence_penalty": 1.3},
    {"repeat_penalty": 1.3, "repeat_last_n": 2},
    {"typical_p": 0.1},
    {"dry_multiplier": 9.0, "dry_allowed_length": 1},
    {"xtc_probability": 1.0, "xtc_threshold": 0.03},
]


@pytest.mark.parametrize("option", ONE_BY_ONE)
def test_each_option_matters_at_temperature_0(option: dict[str, Any]) -> None:
    """Token 7 leads, an end token follows closely: each option alone changes the greedy text."""
    row = np.linspace(0, 1, VOCAB, dtype=np.float32)
    row[7], row[END[0]] = 2.0, 1.9
    if "ignore_eos" in option or "min_tokens" in option:
        row[7], row[END[0]] = 1.9, 2.0
    texts = []
    for params in (replace(OFF, temperature=0), replace(OFF, temperature=0, **option)):
        state, text = start(params, prompt=(7, 7)), []
        for _ in range(6):
            text.append(state.draw(row))
            state = state.advance(text[-1])
        texts.append(text)
    assert texts[0] != texts[1]


def test_min_tokens_masks_exactly_the_first_positions() -> None:
    state, row = start(replace(OFF, min_tokens=3)), np.zeros(VOCAB, dtype=np.float32)
    for index in range(6):
        assert (state.law(row).p(END[0]) > 0) == (state.law(row).p(END[1]) > 0) == (index >= 3)
        state = state.advance(1)


def test_default_filters_do_not_touch_the_greedy_choice() -> None:
    row = random_row(0)
    state = start(SamplingParams(temperature=0))
    assert state.draw(row) == int(np.argmax(row))
    assert state.law(row).top(2) == ((int(np.argmax(row)), 1.0),)


def test_typical_sampling_can_drop_the_likeliest_token_even_when_greedy() -> None:
    mass = np.array([0.4, *[0.6 / 30] * 30])
    row = np.log(mass).astype(np.float32)
    assert start(replace(OFF, temperature=0)).draw(row) == 0
    assert start(replace(OFF, temperature=0, typical_p=0.3)).draw(row) != 0


def test_greedy_without_a_temperature_step() -> None:
    assert start(replace(OFF, temperature=0, samplers=("top_k",))).draw(random_row(1)) == int(np.argmax(random_row(1)))


def test_rows_are_only_read() -> None:
    row = random_row(4)
    row.flags.writeable = False
    params = SamplingParams(repeat_penalty=1.2, logit_bias=((1, 2.0),), ignore_eos=True, typical_p=0.9)
    for temperature in (0.0, 0.8):
        state = start(replace(params, temperature=temperature))
        state.draw(row)
        state.draft_law(row, allowed=20)
        state.guesses(row, 2, allowed=20)
        state.residual(row, None, 0).draw()


def test_states_do_not_change() -> None:
    row = random_row(5)
    state = start(SamplingParams(frequency_penalty=0.5, repeat_last_n=3))
    law, token = state.law(row), state.draw(row)
    children = [state.advance(t).advance(9) for t in range(10)]
    assert state.index == 0
    assert (state.law(row).logp == law.logp).all()
    assert state.draw(row) == token
    assert len({float(child.law(row).logp.sum()) for child in children}) > 1
    with pytest.raises(FrozenInstanceError):
        state.index = 3  # type: ignore[misc]
    copy = pickle.loads(pickle.dumps(children[0]))
    assert copy.draw(row) == children[0].draw(row)


def test_the_order_of_asking_does_not_matter() -> None:
    states = [start(SamplingParams(), seed=9)]
    for token in range(20):
        states.append(states[-1].advance(token))
    drawn = [state.draw(random_row(i)) for i, state in enumerate(states)]
    order = list(range(len(states)))
    random.Random(1).shuffle(order)
    for i in [*order, *order]:
        assert states[i].draw(random_row(i)) == drawn[i]


def test_the_noise_of_a_guess_is_that_of_the_draw() -> None:
    row = random_row(6)
    state = start(SamplingParams(), seed=4)
    later = state.advance(1).advance(2)
    law = later.law(row)
    assert later.draw(row) == law.draw(later.noise(law.ids))
    assert (state.noise(law.ids) != later.noise(law.ids)).all()


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("k", [1, 3])
def test_the_first_guess_is_the_draw_and_chances_are_shares(temperature: float, k: int) -> None:
    for seed in range(20):
        row = random_row(seed, 300)
        state = start(SamplingParams(temperature=temperature, repeat_penalty=1.2), seed=seed)
        guesses = state.guesses(row, k)
        assert guesses[0][0] == state.draw(row)
        assert len(guesses) == k
        assert [p for _, p in guesses] == sorted((p for _, p in guesses), reverse=True)
        assert 0 < sum(p for _, p in guesses) <= 1 + 1e-6


def test_greedy_guesses_have_the_softmax_of_the_whole_row() -> None:
    row = random_row(10, 500)
    state = start(SamplingParams(temperature=0, logit_bias=((0, 50.0),)))
    guesses = state.guesses(row, 3, allowed=400)
    assert [token for token, _ in guesses] == [0, *np.argsort(-row[1:400], kind="stable")[:2] + 1]
    scores = row[:400].astype(float)
    scores[0] += 50.0
    shares = np.exp(scores - scores.max())
    assert [p for _, p in guesses] == pytest.approx([shares[t] / shares.sum() for t, _ in guesses], rel=1e-4)


def test_draft_noise_is_apart_from_the_targets() -> None:
    state, ids = start(SamplingParams()), np.arange(5000, dtype=np.int32)
    own = state.noise(ids)
    drafts = [state.draft_noise(ids, salt=salt) for salt in (0, 1, 2)]
    for a, b in [(own, drafts[0]), (drafts[0], drafts[1]), (drafts[1], drafts[2])]:
        assert abs(np.corrcoef(a, b)[0, 1]) < 0.05


@pytest.mark.parametrize(
    "params", [OFF, SamplingParams(), replace(OFF, temperature=0.7, top_k=20, top_p=0.9, min_p=0.05)]
)
def test_frequencies_of_draws(params: SamplingParams) -> None:
    row, n = random_row(7, 30), 4000
    law = start(params).law(row)
    seen = dict.fromkeys(law.ids.tolist(), 0)
    for seed in range(n):
        seen[start(params, seed=seed).draw(row)] += 1
    expected = np.exp(law.logp) * n
    few = expected < 5
    observed = np.array(list(seen.values()))
    pooled = [*observed[~few], observed[few].sum()], [*expected[~few], expected[few].sum()]
    drop = 0 if few.any() else -1
    assert stats.chisquare(*(x[: drop or None] for x in pooled)).pvalue > 1e-4


def test_seeds_give_different_texts_and_0_is_one_of_them() -> None:
    row = np.zeros(VOCAB, dtype=np.float32)
    texts = set()
    for seed in (0, 1, 2, 2**64 - 1):
        state = start(OFF, seed=seed)
        text = []
        for _ in range(8):
            text.append(state.draw(row))
            state = state.advance(text[-1])
        assert len(set(text)) > 3
        texts.add(tuple(text))
    assert len(texts) == 4


@pytest.mark.parametrize("n", [25, 40, 90])
def test_draft_rows_of_another_length(n: int) -> None:
    params = SamplingParams(
        temperature=0.8, logit_bias=((30, 9.0), (2, -math.inf)), ignore_eos=True, repeat_penalty=1.1
    )
    state = start(params, prompt=(1, 39, 1))
    law = state.draft_law(random_row(8, n), allowed=35)
    assert law.ids.max() < min(n, 35)
    assert {2, *END}.isdisjoint(law.ids.tolist())
    assert math.isclose(np.exp(law.logp).sum(), 1)


def test_draft_law_is_the_law_of_the_same_row() -> None:
    state, row = start(SamplingParams(repeat_penalty=1.3, min_tokens=4)), random_row(9)
    assert (state.draft_law(row).logp == state.law(row).logp).all()


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_everything_banned_or_nothing_finite(temperature: float) -> None:
    row = random_row(11, 4)
    banned = tuple((token, -math.inf) for token in range(4))
    with pytest.raises(LocalspecError, match="no token is left"):
        start(SamplingParams(temperature=temperature, logit_bias=banned)).draw(row)
    with pytest.raises(ModelFault, match="NaN"):
        start(SamplingParams(temperature=temperature)).draw(np.full(4, np.nan, dtype=np.float32))
