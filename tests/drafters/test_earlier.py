"""Texts that a request names to draft from: they speed up an answer, never change it, and are forgotten with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.control import Limits, Price
from localspec.drafters.automaton import LONGEST, Cursor
from localspec.drafters.base import Ask, Drafter
from localspec.drafters.ngram import NgramSimple
from localspec.drafters.suffix import Earlier, Suffix, automaton_of
from localspec.engine import Engine
from localspec.spec.tree import TokenTree
from localspec.types import GenerationRequest, SamplingParams, SpecParams
from tests.drafters.support import STATE, WIDE
from tests.engine.support import alone, answer, fake, plain, request, together

few = settings(max_examples=60, deadline=None)
TEXTS = st.lists(st.lists(st.integers(0, 2), max_size=20), max_size=3)
NO_END = SamplingParams(temperature=0.8, seed=5, ignore_eos=True)


def longest(tokens: Sequence[int], texts: Sequence[Sequence[int]]) -> int:
    """How long an end of ``tokens`` is that occurs in one of ``texts``."""

    def occurs(run: Sequence[int]) -> bool:
        return any(list(text[i : i + len(run)]) == list(run) for text in texts for i in range(len(text)))

    n = len(tokens)
    return next((k for k in range(n, 0, -1) if occurs(tokens[n - k :])), 0)


@few
@given(TEXTS, st.lists(st.integers(0, 2), min_size=1, max_size=30), st.integers(1, 5))
def test_the_longest_end_that_stands_elsewhere(texts: list[list[int]], tokens: list[int], stride: int) -> None:
    cursor = Cursor(automaton_of(texts))
    for n in range(1, len(tokens) + 1, stride):
        state, length = next(cursor.matches(tokens[:n]), (0, 0))
        assert length == longest(tokens[:n], texts)
        assert (state == 0) == (length == 0)


def test_no_longer_than_what_is_read_again() -> None:
    """However a text is read, its matches are the same."""
    text = [3, *(i % 3 for i in range(3 * LONGEST)), 9, *(i % 3 for i in range(3 * LONGEST))]
    automaton = automaton_of([text])
    steady = Cursor(automaton)
    for n in range(1, len(text)):
        assert list(steady.matches(text[:n])) == list(Cursor(automaton).matches(text[:n]))


def guess(drafter: Earlier, tokens: Sequence[int], earlier: Sequence[Sequence[int]], seq: int = 0) -> TokenTree:
    (draft,) = drafter.propose([Ask(seq, tokens, Price(WIDE), STATE, earlier=earlier)])
    return draft.tree


def test_it_goes_on_as_the_text_did() -> None:
    drafter = Earlier()
    texts = ((4, 5, 6, 7), (5, 6, 8))
    assert guess(drafter, [1, 4, 5], texts).tokens == (5, 6, 7)
    assert guess(drafter, [1, 4, 5, 6, 7], texts).draft_n == 0, "one text does not go on with the next"
    assert set(guess(drafter, [1, 5, 6], texts, seq=1).tokens) == {6, 7, 8}
    assert guess(drafter, [1, 5], texts, seq=2).draft_n == 0, "one token says nothing"


def test_each_conversation_has_its_own() -> None:
    drafter = Earlier()
    texts = ((4, 5, 6, 7),)
    assert guess(drafter, [4, 5], texts).draft_n
    assert guess(drafter, [4, 5], ((4, 5, 9),), seq=1).tokens == (5, 9)
    drafter.truncate(0, 2)
    assert guess(drafter, [4, 5], ((4, 5, 9),)).tokens == (5, 9), "another request names other texts"
    drafter.truncate(0, 2)
    drafter.close(1)
    assert not drafter._readings


def letters(ids: Sequence[int]) -> str:
    """A text that `FakeVocab` reads as these ids."""
    vocab = fake(28).vocab
    return "".join(vocab.piece(token).decode() for token in ids)


def like(ids: Sequence[int], n: int = 40, spec: SpecParams | None = None) -> GenerationRequest:
    wish = request([3, 4, 5, 3, 9, 8], sampling=NO_END, spec=spec or SpecParams(depth=8), n=n)
    return replace(wish, draft_from=(letters(ids),))


def regenerating() -> tuple[Engine, Earlier]:
    earlier = Earlier()
    return Engine(fake(28, seed=2), [Suffix(), earlier]), earlier


def test_the_same_answer_again_takes_few_steps() -> None:
    ids = alone(fake(28, seed=2), plain(like([]))).ids
    engine, earlier = regenerating()
    for _ in range(2):
        got = answer(engine, like(ids))
        assert got.ids == ids
        assert {one.name: one.accepted for one in got.stats.by_source}["earlier"] >= 30
        assert got.stats.steps <= 8
        assert not earlier._readings, "forgotten with the request"


def test_a_request_that_names_no_text_gets_none() -> None:
    engine, _ = regenerating()
    ids = answer(engine, like([])).ids
    assert answer(engine, like(ids, n=4)).stats.draft_n
    got = answer(engine, replace(like([]), draft_from=()))
    assert "earlier" not in {one.name for one in got.stats.by_source}
    assert got.ids == ids


def test_neighbours_do_not_share_it() -> None:
    engine, _ = regenerating()
    ids = answer(engine, like([])).ids
    named, other = together(engine, [like(ids), replace(like([]), draft_from=())])
    assert named.ids == other.ids == ids
    assert "earlier" in {one.name for one in named.stats.by_source}
    assert "earlier" not in {one.name for one in other.stats.by_source}


def test_it_is_part_of_suffix() -> None:
    engine = Engine(fake(28, seed=2), [NgramSimple(), Suffix(), Earlier()])
    assert engine.info.drafters == ("ngram-simple", "suffix")
    ids = answer(engine, like([])).ids
    for types, there in ((None, True), (("suffix",), True), (("ngram-simple",), False), (("none",), False)):
        got = answer(engine, like(ids, spec=SpecParams(depth=8, types=types)))
        assert got.ids == ids
        assert ("earlier" in {one.name for one in got.stats.by_source}) == there


@few
@given(
    texts=st.lists(st.text("abcdefghij", max_size=30), max_size=3),
    right=st.booleans(),
    seed=st.integers(0, 50),
    temperature=st.sampled_from([0.0, 0.8, 1.5]),
    spec=st.builds(SpecParams, depth=st.integers(1, 8), width=st.integers(1, 3), nodes=st.integers(1, 16)),
)
def test_it_never_changes_the_text(
    texts: list[str], right: bool, seed: int, temperature: float, spec: SpecParams
) -> None:
    sampling = SamplingParams(temperature=temperature, seed=seed)
    wish = request([3, 4, 5, 3], sampling=sampling, spec=spec, n=30, logprobs=1)
    wanted = alone(fake(12, seed=seed), plain(wish))
    named = (*texts, wanted.text[: seed % 30]) if right else tuple(texts)
    drafters: list[Drafter] = [Suffix(), Earlier()]
    assert alone(fake(12, seed=seed), replace(wish, draft_from=named), drafters).told == wanted.told


def test_limits_bind_it_too() -> None:
    tree = Earlier().propose([Ask(0, [4, 5], Price(Limits(2, 9, 1)), STATE, earlier=((4, 5, 6, 7, 8),))])[0].tree
    assert tree.tokens == (5, 6, 7)
