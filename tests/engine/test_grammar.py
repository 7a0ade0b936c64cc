"""Answers that follow a grammar: who guesses does not matter, and what the grammar forces is guessed."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localspec.backends.fake import END, FakeTarget, FakeVocab
from localspec.control import AutoController, Controller, FixedController
from localspec.drafters.base import Ask, Drafter
from localspec.drafters.suffix import Suffix
from localspec.engine import Engine
from localspec.errors import UsageError
from localspec.grammar import Grammars
from localspec.sampling import SamplerState
from localspec.spec.tree import TokenTree
from localspec.types import SamplingParams, SpecParams
from tests.engine.support import Scripted, alone, answer, ngrams, nothing, plain, request, together
from tests.engine.test_lossless import SPECS, samplings
from tests.grammar.support import grammars

few = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])

#: The first letters of the fake vocabulary, and words of them.
LETTERS = "abc"
WORDS = {40: "ab", 41: "abc", 42: "cc", 43: "bca", 44: "é", 45: "a" * 9}
N_VOCAB = 46

MIXES: dict[str, Callable[[FakeTarget, int, float], list[Drafter]]] = {
    "forced": lambda target, seed, noise: [Scripted(nothing)],
    "draft": lambda target, seed, noise: [draft(seed, noise)],
    "ngram": lambda target, seed, noise: [ngrams(1)],
    "suffix": lambda target, seed, noise: [Suffix()],
    "wild": lambda target, seed, noise: [Scripted(anything)],
    "all": lambda target, seed, noise: [draft(seed, noise), ngrams(1), Suffix(), Scripted(anything)],
}


def vocab() -> FakeVocab:
    return FakeVocab(N_VOCAB, renamed=WORDS)


def model(seed: int = 0) -> FakeTarget:
    return FakeTarget(vocab(), seed=seed)


def draft(seed: int, noise: float) -> Drafter:
    from localspec.drafters.draft_model import DraftModel
    from localspec.vocab import pair

    pairing = pair(vocab(), vocab())
    assert pairing is not None
    return DraftModel(FakeTarget(vocab(), seed=seed, noise=noise), pairing)


def anything(ask: Ask) -> TokenTree:
    """A tree that pays no heed to the grammar."""
    limits = ask.price.limits
    tokens = [ask.tokens[-1], *(2 + (len(ask.tokens) * 7 + i * i) % 44 for i in range(limits.depth))]
    return TokenTree.chain(tokens[: limits.nodes + 1], source="scripted")


@pytest.mark.parametrize("mix", MIXES)
@few
@given(data=st.data(), pair=grammars(LETTERS), seed=st.integers(0, 99), spec=SPECS)
def test_any_grammar_any_drafter(
    mix: str, data: st.DataObject, pair: tuple[str, str], seed: int, spec: SpecParams
) -> None:
    sampling = replace(data.draw(samplings(N_VOCAB)), grammar=pair[0], logit_bias=())
    wish = request([2, 3, 4], sampling=sampling, spec=spec, n=30, logprobs=data.draw(st.sampled_from([None, 2])))
    noise = data.draw(st.sampled_from([0.0, 1.0, 5.0]))
    wanted = alone(model(seed), plain(wish))
    got = alone(model(seed), wish, MIXES[mix](model(seed), seed, noise))
    assert got.told == wanted.told
    assert not got.notices
    assert wanted.finished.reason == "length" or re.fullmatch(pair[1], wanted.text)


@pytest.mark.parametrize("make", [AutoController, FixedController])
def test_what_is_forced_is_guessed_and_holds(make: Callable[[], Controller]) -> None:
    text = "abcabcabcabc"
    sampling = SamplingParams(temperature=0.8, seed=3, grammar=f'root ::= ("{text}" [ab]){{4}}')
    wish = request([2], sampling=sampling, spec=SpecParams(depth=8))
    wanted = alone(model(), plain(wish))
    assert re.fullmatch(f"({text}[ab]){{4}}", wanted.text)
    got = answer(Engine(model(), [Scripted(nothing)], controller=make()), wish)
    assert got.told == wanted.told
    forced = {source.name: source for source in got.stats.by_source}["grammar"]
    assert forced.accepted > 0
    assert got.stats.steps < wanted.stats.steps


def test_the_only_token_allowed_is_certain() -> None:
    letters = [FakeVocab(9).text(token) for token in range(2, 9)]
    target = FakeTarget(FakeVocab(9))
    sampling = SamplingParams(temperature=1.5, seed=1, grammar=f'root ::= "{"".join(letters)}"')
    got = alone(target, request([2], sampling=sampling, spec=SpecParams(depth=20, nodes=20)), [Scripted(nothing)])
    assert got.text == "".join(letters)
    assert got.stats.acceptance == 1
    assert got.stats.steps == 1
    assert all(info.draft_p == 1 for info in got.infos if info.source == "grammar")


def test_guesses_outside_the_grammar_cost_no_row() -> None:
    sampling = SamplingParams(temperature=0, grammar="root ::= [ab]{20}")
    drafter = Scripted(lambda ask: TokenTree.chain([ask.tokens[-1], 4, 5, 6], source="scripted"))
    got = alone(model(), request([2], sampling=sampling), [drafter])
    assert got.stats.draft_n == 0


@pytest.mark.parametrize("types", [("none",), ("scripted",)])
def test_who_is_not_asked_for_guesses_nothing(types: tuple[str, ...]) -> None:
    sampling = SamplingParams(temperature=0, grammar='root ::= "abcabcabc"')
    got = alone(model(), request([2], sampling=sampling, spec=SpecParams(types=types)), [Scripted(nothing)])
    assert got.stats.draft_n == 0


def test_ratio_keeps_to_the_grammar_and_to_its_law() -> None:
    """Both rules draw from the same distribution, which the grammar is part of."""
    counts = {}
    for rule in ("draw", "ratio"):
        seen = np.zeros(2)
        for seed in range(400):
            sampling = SamplingParams(
                temperature=1.0, top_k=0, min_p=0, top_p=1, seed=seed, grammar="root ::= [ab][bc]"
            )
            spec = SpecParams(depth=2, width=2, nodes=6, accept=rule)
            text = alone(model(5), request([7], sampling=sampling, spec=spec), [draft(5, 1.0)]).text
            assert re.fullmatch("[ab][bc]", text)
            seen += text[0] == "a", text[1] == "b"
        counts[rule] = seen / 400
    assert np.abs(counts["draw"] - counts["ratio"]).max() < 0.12


def test_a_finished_grammar_ends_the_answer_whatever_bans_ends() -> None:
    base = SamplingParams(temperature=0.8, seed=2, grammar='root ::= "abc"')
    for sampling in (base, replace(base, ignore_eos=True), replace(base, min_tokens=9)):
        got = alone(model(), request([2], sampling=sampling))
        assert (got.text, got.finished.reason) == ("abc", "stop")
    sampling = SamplingParams(temperature=0.8, seed=2, grammar="root ::= [abc]*", ignore_eos=True)
    assert alone(model(), request([2], sampling=sampling, n=50)).finished.reason == "length"


def test_what_bans_every_token_is_said() -> None:
    sampling = SamplingParams(grammar='root ::= "\U0001f600"')
    assert "the grammar ban" in alone(model(), request([2], sampling=sampling)).failed.message


def test_a_bad_grammar_is_refused_and_nothing_is_queued() -> None:
    with Engine(model()) as engine:
        with pytest.raises(UsageError, match="left recursion"):
            engine.submit(request([2], sampling=SamplingParams(grammar='root ::= root "a" | "b"')))
        assert answer(engine, request([2], n=3)).ids


def test_neighbours_have_grammars_of_their_own() -> None:
    wishes = [
        request([2, i], sampling=SamplingParams(temperature=0.9, seed=i, grammar=f"root ::= [{letters}]{{12}}"))
        for i, letters in enumerate(("ab", "bc", "ab"), 2)
    ]
    got = together(Engine(model(), [Suffix()]), [*wishes, request([3], n=12)])
    for one, wish in zip(got, wishes, strict=False):
        assert one.told == alone(model(), plain(wish)).told
    assert re.fullmatch("[ab]{12}", got[0].text)


def test_a_grammar_too_ambiguous_to_follow_ends_its_answer_alone() -> None:
    bad = SamplingParams(temperature=0.9, seed=1, grammar='root ::= "ab" ([ab]{0,5000}){0,5000}')
    with Engine(model(), [Suffix()]) as engine:
        got = together(engine, [request([2], sampling=bad), request([3], n=30)])
    assert "too ambiguous" in got[0].failed.message
    assert len(got[1].ids) <= 30


def row(seed: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.random.default_rng(seed).normal(0, 3, N_VOCAB).astype(np.float32)


@few
@given(
    params=samplings(600),
    seed=st.integers(0, 99),
    grammar=st.sampled_from(
        ["root ::= [a-m] [0-9]*", "root ::= [a-z0-9]*", 'root ::= "z"* "q" [0-9]', "root ::= [0-9a-z]"]
    ),
    ties=st.booleans(),
)
def test_a_look_at_the_likeliest_finds_what_the_whole_mask_does(
    params: SamplingParams, seed: int, grammar: str, ties: bool
) -> None:
    words = FakeVocab(600)
    place = Grammars([words.piece(token) for token in range(600)], {END}).start(grammar)
    state = SamplerState.start(params, seed=seed, prompt=[2], end_tokens={END}, n_ctx=64, grammar=place)
    scores = np.random.default_rng(seed).normal(0, 3, 600).astype(np.float32)
    if ties:
        scores = np.round(scores)
    free = replace(state, grammar=None)
    banned = place.ban(scores)
    assert (banned > -np.inf).tolist() == [place.allows(token) for token in range(600)]
    law, wanted = state.law(scores), free.law(banned)
    assert law.ids.tolist() == wanted.ids.tolist()
    assert law.logp == pytest.approx(wanted.logp)
    assert state.draw(scores) == free.draw(banned)
    for k in (1, 3):
        assert [token for token, _ in state.guesses(scores, k)] == [token for token, _ in free.guesses(banned, k)]


@few
@given(pair=grammars(LETTERS), params=samplings(N_VOCAB), seed=st.integers(0, 99))
def test_one_law_for_all_who_ask(pair: tuple[str, str], params: SamplingParams, seed: int) -> None:
    """``law``, ``draw``, ``guesses``, ``draft_law`` and ``residual`` leave out the same tokens: the samplers run over
    what the grammar allows, as if nothing else were in the vocabulary."""
    params = replace(params, grammar=pair[0], logit_bias=())
    place = Grammars([vocab().piece(token) for token in range(N_VOCAB)], {END}).start(pair[0])
    state = SamplerState.start(params, seed=seed, prompt=[2], end_tokens={END}, n_ctx=64, grammar=place)
    for step in range(6):
        scores = row(seed * 10 + step)
        law = state.law(scores)
        assert all(state.grammar is not None and state.grammar.allows(token) for token in law.ids.tolist())
        banned = np.where(
            [state.grammar is not None and state.grammar.allows(t) for t in range(N_VOCAB)], scores, -np.inf
        )
        alone_ = replace(state, grammar=None, params=replace(params, ignore_eos=False, min_tokens=0))
        if not state._bans_ends:
            assert alone_.draw(banned.astype(np.float32)) == state.draw(scores)
        token = state.draw(scores)
        assert law.p(token) > 0
        assert state.guesses(scores, 1)[0][0] == token
        assert state.draft_law(scores).ids.tolist() == state.residual(scores, None, 0).left.ids.tolist() or state.greedy
        if token == END:
            break
        state = state.advance(token)
