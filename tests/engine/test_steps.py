"""Statistics by hand, stops inside accepted runs, and the text that goes on from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.backends.base import Row
from localspec.backends.fake import END, FakeTarget, FakeVocab
from localspec.drafters.base import Ask
from localspec.engine import Engine
from localspec.spec.tree import TokenTree
from localspec.types import SamplingParams, SourceStats, SpecParams
from tests.engine.support import (
    GREEDY,
    Outcome,
    Scripted,
    alone,
    answer,
    draft_model,
    fake,
    ngrams,
    oracle,
    plain,
    request,
)

PROMPT = (3, 4, 5, 3)
NO_END = SamplingParams(temperature=0.0, ignore_eos=True)
DEPTH_5 = SpecParams(depth=5, nodes=16)


class Endless(FakeTarget):
    """Never says the end token, until the text is ``last`` tokens long."""

    def __init__(self, last: int) -> None:
        super().__init__(FakeVocab(20), seed=4)
        self._end_at = last

    def scores(self, text: Sequence[int]) -> Row:
        row = super().scores(text)
        row[END] = 99.0 if len(text) >= self._end_at else -99.0
        return row


def test_rates_of_a_script_by_hand() -> None:
    """G01: rounds of 4 guesses of which 4, 2, 0, … hold; in round 10 all four do, and the answer ends at the third."""
    held = [4, 2, 0, 1, 3, 4, 0, 0, 2, 4]
    # 9 rounds bring held + 1 tokens each, the last one two and the end token.
    length = sum(held[:9]) + 9 + 2
    target = Endless(len(PROMPT) + length)
    ids = alone(target, request(PROMPT, spec=SpecParams(depth=0))).ids
    assert len(ids) == length
    text = (*PROMPT, *ids, END, 9)
    rounds = iter(held)

    def script(ask: Ask) -> TokenTree:
        good = next(rounds)
        guess = list(text[len(ask.tokens) :][:4])
        guess[good:] = [(token + 1) % 19 + 1 for token in guess[good:]]
        guess += [7] * (4 - len(guess))
        return TokenTree.chain([ask.tokens[-1], *guess], source="scripted")

    got = alone(Endless(len(PROMPT) + length), request(PROMPT, spec=SpecParams(depth=4)), [Scripted(script)])
    assert got.ids == ids
    stats = got.stats
    # The guess behind the end token is not verified: 3 guesses in round 10, all hold.
    assert (stats.steps, stats.drafted_steps, stats.draft_n) == (10, 10, 39)
    assert stats.accepted == 4 + 2 + 0 + 1 + 3 + 4 + 0 + 0 + 2 + 3
    # A failed test ends a round, a round in which all held has none.
    assert stats.tested == 4 + 3 + 1 + 2 + 4 + 4 + 1 + 1 + 3 + 3
    assert (stats.emitted, stats.cut) == (length, 2)
    assert stats.lengths == (3, 1, 2, 2, 2)
    assert stats.tested_at == (10, 7, 6, 3)
    assert stats.accepted_at == (7, 6, 4, 2)
    assert stats.by_source == (SourceStats("scripted", 39, 19),)
    assert stats.acceptance == 19 / 39
    assert stats.alpha == 19 / 26
    assert stats.mean_length == 2.9
    assert stats.tokens_per_step == length / 10


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 99),
    noise=st.sampled_from([0.0, 1.0, 4.0]),
    spec=st.builds(SpecParams, depth=st.integers(0, 5), width=st.integers(1, 3), nodes=st.integers(0, 12)),
    n=st.integers(1, 25),
    stop=st.sampled_from([(), ("a",), ("ab", "c")]),
)
def test_every_token_is_counted_once(seed: int, noise: float, spec: SpecParams, n: int, stop: tuple[str, ...]) -> None:
    sampling = SamplingParams(temperature=0.7, seed=seed)
    wish = request(PROMPT, sampling=sampling, spec=spec, n=n, stop=stop)
    got = alone(fake(8, seed=seed), wish, [draft_model(fake(8), seed=seed, noise=noise), ngrams(1)])
    stats = got.stats
    assert stats.emitted + stats.cut == stats.steps + stats.accepted
    assert stats.emitted == len(got.ids)
    assert 0 <= stats.accepted <= stats.tested <= stats.draft_n
    for step in got.steps:
        assert step.emitted + step.cut == 1 + step.accepted
        assert step.accepted <= step.tested <= min(step.accepted + 1, step.draft_n)
    assert sum(stats.lengths) == stats.drafted_steps
    assert sum(stats.tested_at) == stats.tested
    assert sum(stats.accepted_at) == stats.accepted
    assert sum(one.draft_n for one in stats.by_source) == stats.draft_n
    assert sum(one.accepted for one in stats.by_source) == stats.accepted
    assert [info.id for info in got.infos] == list(got.ids)


def test_rates_are_unknown_before_there_is_anything_to_divide_by() -> None:
    got = alone(fake(), request(PROMPT, spec=SpecParams(depth=0), n=3))
    assert (got.stats.acceptance, got.stats.alpha, got.stats.mean_length) == (None, None, None)
    got = alone(fake(), request(PROMPT, n=0))
    assert got.stats.tokens_per_step is None
    assert (got.ids, got.text, got.finished.reason) == ((), "", "length")


def settled(engine: Engine, ids: tuple[int, ...]) -> None:
    """A further turn on top of an answer equals a cold run."""
    turn = request((*PROMPT, *ids, 6, 7), sampling=NO_END, spec=DEPTH_5, n=12)
    warm = answer(engine, turn)
    assert warm.told == alone(fake(20, seed=2), plain(turn)).told
    # All that was committed is found again: everything but, at most, the token that was pending.
    assert warm.started.cache_n >= len(PROMPT) + len(ids) - 1


def baseline() -> Outcome:
    return alone(fake(20, seed=2), request(PROMPT, sampling=NO_END, n=24, spec=SpecParams(depth=0)))


@pytest.mark.parametrize("start", range(0, 22, 2))
@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_stop_string_anywhere(start: int, length: int) -> None:
    """B02: what plain decoding said is declared a stop string and given as guesses."""
    base = baseline()
    stop = base.text[start : start + length]
    wish = request(PROMPT, sampling=NO_END, n=24, stop=(stop,), logprobs=1, spec=DEPTH_5)
    wanted = alone(fake(20, seed=2), plain(wish))
    assert wanted.text == base.text[: base.text.index(stop)]
    for shift in range(3):
        drafter = Scripted(oracle((*PROMPT, *base.ids)))
        engine = Engine(fake(20, seed=2), [drafter, ngrams()])
        got = answer(engine, replace(wish, spec=replace(DEPTH_5, depth=5 - shift)))
        assert got.told == wanted.told
        assert got.finished.stop == stop
        settled(engine, got.ids)


@pytest.mark.parametrize("at", range(1, 14))
def test_an_end_token_anywhere(at: int) -> None:
    """B01: the answer ends at the end token, wherever in an accepted run it is."""
    for depth in (1, 4, 5):
        target, twin = Endless(len(PROMPT) + at), Endless(len(PROMPT) + at)
        wish = request(PROMPT, spec=SpecParams(depth=depth), logprobs=1)
        wanted = alone(twin, plain(wish))
        assert (len(wanted.ids), wanted.finished.reason, wanted.finished.stop) == (at, "stop", None)
        got = alone(target, wish, [Scripted(oracle((*PROMPT, *wanted.ids, END, 5, 6, 7)))])
        assert got.told == wanted.told


@pytest.mark.parametrize("n", range(1, 13))
def test_a_token_limit_anywhere(n: int) -> None:
    base = baseline()
    engine = Engine(fake(20, seed=2), [Scripted(oracle((*PROMPT, *base.ids)))])
    got = answer(engine, request(PROMPT, sampling=NO_END, n=n, spec=DEPTH_5))
    assert got.ids == base.ids[:n]
    assert got.finished.reason == "length"
    assert got.stats.cut == 0  # guesses past the limit are not even made
    settled(engine, got.ids)


def test_a_stop_string_that_names_a_control_token() -> None:
    wish = request(PROMPT, sampling=SamplingParams(temperature=0, logit_bias=((1, 99.0),)), stop=("<ctl>",), n=9)
    got = alone(fake(), wish, [draft_model(fake())])
    assert (got.ids, got.text, got.finished.stop, got.finished.reason) == ((), "", "<ctl>", "stop")


@pytest.mark.parametrize("reused", [False, True])
def test_no_tokens_at_all(reused: bool) -> None:
    """``max_tokens=0`` draws nothing, also where the prompt is in the cache already."""
    engine = Engine(fake(), [ngrams()])
    if reused:
        answer(engine, request(PROMPT, n=2))
    for prompt in (PROMPT, PROMPT[:1]):
        got = answer(engine, request(prompt, n=0))
        assert (got.ids, got.finished.reason, got.stats.steps) == ((), "length", 0)
    assert answer(engine, request(PROMPT, n=5)).ids == alone(fake(), request(PROMPT, n=5)).ids


def test_min_depth_drops_short_guesses() -> None:
    base = alone(fake(), request(PROMPT, n=20))
    script = Scripted(lambda ask: TokenTree.chain([ask.tokens[-1], 2, 3], source="scripted"))
    got = alone(fake(), request(PROMPT, n=20, sampling=GREEDY, spec=SpecParams(min_depth=3)), [script])
    assert got.told == base.told
    assert got.stats.draft_n == 0
