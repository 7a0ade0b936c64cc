"""``suffix`` and its automaton against brute force over the text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.control import Limits, Price
from localspec.drafters.automaton import SuffixAutomaton
from localspec.drafters.base import Ask
from localspec.drafters.suffix import NAME, Suffix, SuffixOptions
from localspec.sampling import SamplerState
from localspec.spec.tree import TokenTree
from localspec.types import SamplingParams

few = settings(max_examples=60, deadline=None)
TEXTS = st.lists(st.integers(0, 2), min_size=1, max_size=24)
STATE = SamplerState.start(SamplingParams(), seed=0, prompt=(), end_tokens=(), n_ctx=64)
WIDE = Limits(depth=9, nodes=99, width=9)


def guess(drafter: Suffix, tokens: Sequence[int], limits: Limits = WIDE, row_s: float = 0.0, seq: int = 0) -> TokenTree:
    (draft,) = drafter.propose([Ask(seq, tokens, Price(limits, row_s), STATE)])
    return draft.tree


def suffix(**options: float) -> Suffix:
    drafter = Suffix(SuffixOptions(**options))  # type: ignore[arg-type]
    drafter.open(0)
    return drafter


def longest_match(tokens: Sequence[int]) -> int:
    """How long an end of the text is that also ends somewhere before, overlapping or not."""
    n = len(tokens)
    return next((k for k in range(n - 1, 0, -1) if any(tokens[i - k : i] == tokens[n - k :] for i in range(k, n))), 0)


def followers(tokens: Sequence[int], run: Sequence[int]) -> Counter[int]:
    k = len(run)
    return Counter(tokens[i + k] for i in range(len(tokens) - k) if list(tokens[i : i + k]) == list(run))


@few
@given(TEXTS)
def test_the_longest_match_and_what_followed(tokens: list[int]) -> None:
    automaton = SuffixAutomaton(tokens)
    found = next(automaton.matches(), None)
    length = longest_match(tokens)
    assert (found[1] if found else 0) == length
    if found:
        seen = {token: times for token, times, _ in automaton.followers(found[0])}
        assert seen == dict(followers(tokens, tokens[len(tokens) - length :]))
        times = [count for _, count, _ in automaton.followers(found[0])]
        assert times == sorted(times, reverse=True)


@few
@given(TEXTS)
def test_all_matches_from_the_longest_down(tokens: list[int]) -> None:
    lengths = [length for _, length in SuffixAutomaton(tokens).matches()]
    assert lengths == sorted(lengths, reverse=True)
    for length in lengths:
        assert followers(tokens, tokens[len(tokens) - length :])


def test_a_text_of_one_token_is_no_trap() -> None:
    automaton = SuffixAutomaton([7] * 20_000)
    assert next(automaton.matches()) == (19_999, 19_999)


@few
@given(TEXTS, st.integers(1, 6), st.integers(1, 9), st.integers(1, 3), st.floats(0, 0.9), st.floats(0, 0.9))
def test_limits_and_price(tokens: list[int], depth: int, nodes: int, width: int, p_min: float, row_s: float) -> None:
    tree = guess(suffix(), tokens, Limits(depth, nodes, width, p_min), row_s)
    assert tree.tokens[0] == tokens[-1]
    assert tree.draft_n <= nodes
    assert max(tree.depths) <= depth
    assert max(len(kids) for kids in tree.children) <= width
    assert all(score >= p_min for score in tree.scores[1:])
    assert all(tree.reach[node] > row_s for node in range(1, len(tree)) if tree.depths[node] > 1)
    assert set(tree.sources[1:]) <= {NAME}


@few
@given(TEXTS)
def test_every_guess_occurred(tokens: list[int]) -> None:
    tree = guess(suffix(factor=9), tokens)
    length = longest_match(tokens)
    for node in range(1, len(tree)):
        path = [tree.tokens[i] for i in tree.path(node)][1:]
        run = tokens[len(tokens) - length :] + path
        assert any(tokens[i : i + len(run)] == run for i in range(len(tokens)))
        assert 0 < tree.scores[node] < 1


def test_longer_matches_are_believed_more_and_guess_further() -> None:
    short = guess(suffix(factor=2), [1, 5, 6, 7, 8, 2, 1])
    long = guess(suffix(factor=2), [1, 2, 3, 5, 6, 7, 8, 9, 9, 8, 1, 2, 3])
    assert short.draft_n == 2
    assert long.draft_n == 6
    assert long.scores[1] > short.scores[1]


def test_frequent_continuations_come_first() -> None:
    tree = guess(suffix(), [0, 1, 2, 9, 0, 1, 3, 8, 0, 1, 3, 7, 0, 1], Limits(1, 9, 9))
    assert tree.tokens[1:] == (3, 2)
    assert tree.scores[1] == pytest.approx(2 * tree.scores[2])


@few
@given(TEXTS, st.integers(0, 23), TEXTS)
def test_a_cut_text_reads_on(tokens: list[int], keep: int, more: list[int]) -> None:
    """Nothing of what was cut off is a source any more."""
    drafter = suffix()
    guess(drafter, tokens)
    drafter.truncate(0, keep)
    text = [*tokens[:keep], *more]
    assert guess(drafter, text) == guess(suffix(), text)


def test_conversations_do_not_leak() -> None:
    """E13: what one conversation said is no guess in another, also after a fork or a reopening."""
    drafter = suffix()
    secret = [7, 8, 9, 10, 11, 12]
    assert guess(drafter, [*secret, 7, 8, 9]).draft_n
    drafter.open(1)
    assert guess(drafter, [5, 7, 8, 9], seq=1).draft_n == 0
    drafter.fork(0, 2, 0)
    assert guess(drafter, [5, 7, 8, 9], seq=2).draft_n == 0
    drafter.fork(0, 3, 4)
    assert 11 not in guess(drafter, [*secret[:4], 7, 8, 9], seq=3).tokens
    drafter.close(0)
    drafter.open(0)
    assert guess(drafter, [5, 7, 8, 9]).draft_n == 0
