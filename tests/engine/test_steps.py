"""Statistics by hand, stops inside accepted runs, and the text that goes on from them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.backends.base import Row, Rows, Work
from localspec.backends.fake import END, FakeTarget, FakeVocab
from localspec.drafters.base import Ask
from localspec.engine import Engine
from localspec.report import answer_record, finite, status_line, timings_record
from localspec.spec.tree import TokenTree
from localspec.types import EngineInfo, SamplingParams, SourceStats, SpecParams
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
OTHER_END = 9


class Endless(FakeTarget):
    """Says ``end``, one of its two end tokens, where the text is ``last`` tokens long, and nowhere else any of them."""

    def __init__(self, last: int, end: int = END) -> None:
        vocab = FakeVocab(20)
        vocab.end_tokens = frozenset({END, OTHER_END})
        super().__init__(vocab, seed=4)
        self._end, self._end_at = end, last

    def scores(self, text: Sequence[int]) -> Row:
        row = super().scores(text)
        row[[END, OTHER_END]] = -99.0
        if len(text) == self._end_at:
            row[self._end] = 99.0
        return row


def test_rates_of_a_script_by_hand() -> None:
    """G01: rounds of 4 guesses of which 4, 2, 0, … hold; in round 10 all four do, and the answer ends at the third."""
    held = [4, 2, 0, 1, 3, 4, 0, 0, 2, 4]
    # 9 rounds bring held + 1 tokens each, the last one two and the end token.
    length = sum(held[:9]) + 9 + 2
    target = Endless(len(PROMPT) + length)
    ids = alone(target, request(PROMPT, spec=SpecParams(depth=0))).ids
    assert len(ids) == length
    text = (*PROMPT, *ids, END, 8)
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


def test_rates_of_a_tree_by_hand() -> None:
    """G01: nodes beside the path were verified and not tested; a node with three children is tested once."""
    a, b, c = alone(Endless(99), request(PROMPT, spec=SpecParams(depth=0), n=3)).ids
    no, nor, never = [token for token in range(10, 20) if token not in (a, b, c)][:3]
    tree = TokenTree((3, no, a, nor, b, never, no), (-1, 0, 0, 0, 2, 2, 1), (1.0,) * 7, ("",) + ("scripted",) * 6)
    got = alone(
        Endless(99), request(PROMPT, spec=SpecParams(depth=3, nodes=9, width=3), n=3), [Scripted(lambda _: tree)]
    )
    stats = got.stats
    assert got.ids == (a, b, c)
    assert (stats.steps, stats.draft_n, stats.tested, stats.accepted, stats.emitted) == (1, 6, 2, 2, 3)
    assert (stats.acceptance, stats.alpha, stats.mean_length) == (2 / 6, 1.0, 3.0)
    assert (stats.tested_at, stats.accepted_at, stats.lengths) == ((1, 1), (1, 1), (0, 0, 1))


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
    """B02: what plain decoding said is declared a stop string and given as guesses; text, ids, log-probabilities and
    counts end before it."""
    base = baseline()
    stop = base.text[start : start + length]
    wish = request(PROMPT, sampling=NO_END, n=24, stop=(stop,), logprobs=1, spec=DEPTH_5)
    wanted = alone(fake(20, seed=2), plain(wish))
    before = base.text.index(stop)  # a letter is a token
    assert (wanted.text, wanted.ids) == (base.text[:before], base.ids[:before])
    for shift in range(3):
        drafter = Scripted(oracle((*PROMPT, *base.ids)))
        engine = Engine(fake(20, seed=2), [drafter, ngrams()])
        got = answer(engine, replace(wish, spec=replace(DEPTH_5, depth=5 - shift)))
        assert got.told == wanted.told
        assert got.finished.stop == stop
        assert len(got.infos) == got.stats.emitted == got.finished.timings.predicted_n == before
        settled(engine, got.ids)


@pytest.mark.parametrize("end", [END, OTHER_END])
@pytest.mark.parametrize("at", range(1, 14))
def test_an_end_token_anywhere(at: int, end: int) -> None:
    """B01: the answer ends at the end token, whichever it is and wherever in an accepted run; what was guessed behind
    it leaves no trace in the cache."""
    last = len(PROMPT) + at
    for depth in (1, 4, 5):
        wish = request(PROMPT, spec=SpecParams(depth=depth), logprobs=1)
        wanted = alone(Endless(last, end), plain(wish))
        assert (len(wanted.ids), wanted.finished.reason, wanted.finished.stop) == (at, "stop", None)
        engine = Engine(Endless(last, end), [Scripted(oracle((*PROMPT, *wanted.ids, end, 5, 6, 7)))])
        got = answer(engine, wish)
        assert got.told == wanted.told
        turn = request((*PROMPT, *got.ids, 6, 7), n=6)
        assert answer(engine, turn).told == alone(Endless(last, end), plain(turn)).told


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


class Clock:
    """Time that only passes of the target and guesses take."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr("time.perf_counter", lambda: self.now)

    def target(self) -> FakeTarget:
        clock = self

        class Clocked(FakeTarget):
            def forward(self, work: Sequence[Work]) -> list[Rows]:
                clock.now += 1.0
                return super().forward(work)

        return Clocked(FakeVocab(20), seed=2, spread=2.0)

    def drafter(self, text: Sequence[int]) -> Scripted:
        guess = oracle(text)

        def script(ask: Ask) -> TokenTree:
            self.now += 0.25
            return guess(ask)

        return Scripted(script)


@pytest.mark.parametrize(
    ("n", "depth", "rate"),
    [
        (1, 0, None),  # no time between one token and itself
        (11, 0, 1.0),  # a token a pass
        (5, 5, None),  # all in the first step
        (7, 5, 1.0),  # 6 in the first step; the last one is not guessed
        (18, 5, 12 / 2.5),  # two steps of 6, drafting included
    ],
)
def test_the_speed_is_of_tokens_and_the_time_they_took(
    n: int, depth: int, rate: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G02: neither the prompt's time nor tokens that came along with the first one count."""
    base = baseline()
    clock = Clock(monkeypatch)
    wish = request(PROMPT, sampling=NO_END, n=n, spec=SpecParams(depth=depth, nodes=16))
    got = alone(clock.target(), wish, [clock.drafter((*PROMPT, *base.ids))])
    assert got.ids == base.ids[:n]
    timings, drafting = got.finished.timings, 0.25 if depth and n > 1 else 0.0
    assert timings.tokens_per_second == rate
    assert timings.ttft_s == timings.prompt_s == 2.0 + drafting  # the prompt's pass, and the one that decides a token
    assert timings.predicted_n == n
    record = timings_record(timings, got.stats)
    assert record["predicted_per_second"] == rate
    assert ("tok/s" in status_line(got.finished)) == (rate is not None)
    assert got.stats.t_draft == drafting * got.stats.drafted_steps
    assert got.stats.t_verify == got.stats.steps
    assert got.stats.t_host == 0


@pytest.mark.parametrize("grammar", [None, "root ::= [a-f]*"])
def test_log_probabilities_are_the_target_s_own(grammar: str | None) -> None:
    """G03: at every position of an accepted run those of the row that decided it, before temperature, filters, bans and
    grammar; scores of minus infinity are ``null`` in JSON."""
    sampling = SamplingParams(
        temperature=1.7, seed=3, min_p=0.1, ignore_eos=True, logit_bias=((5, -50.0),), grammar=grammar
    )

    class Padded(FakeTarget):
        def scores(self, text: Sequence[int]) -> Row:
            row = super().scores(text)
            row[15:] = -np.inf
            return row

    target, twin = Padded(FakeVocab(20), seed=4), Padded(FakeVocab(20), seed=4)
    wish = request(PROMPT, sampling=sampling, n=16, logprobs=20, spec=DEPTH_5)
    got = alone(target, wish, [Scripted(oracle((*PROMPT, *alone(twin, plain(wish)).ids)))])
    assert got.stats.accepted > 8
    assert len(got.infos) == len(got.ids) == 16
    for i, info in enumerate(got.infos):
        row = target.scores((*PROMPT, *got.ids[:i])).astype(float)
        logp = row - np.log(np.exp(row).sum())
        best = np.argsort(-logp, kind="stable")
        assert info.logprob == pytest.approx(logp[got.ids[i]])
        assert [one.id for one in info.top] == best.tolist()
        assert [one.logprob for one in info.top] == pytest.approx(logp[best].tolist())
    engine = EngineInfo("m", None, (), "fake", 64, 64, 20, False)
    record = answer_record(got.finished, got.text, got.infos, info=engine, seed=3, logprobs=True)
    (*_, last) = json.loads(json.dumps(finite(record), allow_nan=False))["logprobs"]
    assert [one["logprob"] is None for one in last["top_logprobs"]] == [False] * 15 + [True] * 5
