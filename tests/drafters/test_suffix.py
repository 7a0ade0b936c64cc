"""``suffix`` and its automaton against brute force over the text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.control import Limits
from localspec.drafters.automaton import SuffixAutomaton
from localspec.drafters.suffix import Suffix, SuffixOptions
from tests.drafters.support import guess

few = settings(max_examples=60, deadline=None)
TEXTS = st.lists(st.integers(0, 2), min_size=1, max_size=24)


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
