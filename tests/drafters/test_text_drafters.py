"""What holds for every drafter that needs no model."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.control import Limits
from localspec.drafters.registry import MAKERS
from tests.drafters.support import TEXT_DRAFTERS, guess, opened

few = settings(max_examples=40, deadline=None)
TEXTS = st.lists(st.integers(0, 2), min_size=1, max_size=30)
every = pytest.mark.parametrize("name", TEXT_DRAFTERS)


def test_none_is_left_out() -> None:
    assert set(TEXT_DRAFTERS) >= set(MAKERS)


@every
@few
@given(
    TEXTS,
    st.integers(1, 6),
    st.integers(1, 9),
    st.integers(1, 3),
    st.floats(0, 0.9),
    st.floats(0, 0.9),
)
def test_limits_and_price(
    name: str, tokens: list[int], depth: int, nodes: int, width: int, p_min: float, row_s: float
) -> None:
    tree = guess(opened(name), tokens, Limits(depth, nodes, width, p_min), row_s=row_s)
    assert tree.tokens[0] == tokens[-1]
    assert tree.draft_n <= nodes
    assert max(tree.depths) <= depth
    assert max(len(kids) for kids in tree.children) <= width
    assert all(max(p_min, 1e-9) <= score < 1 for score in tree.scores[1:])
    assert all(tree.reach[node] > row_s for node in range(1, len(tree)) if tree.depths[node] > 1)
    assert set(tree.sources[1:]) <= {name}


@every
@few
@given(st.lists(st.tuples(st.integers(0, 30), TEXTS), min_size=1, max_size=5))
def test_a_text_that_was_cut_is_a_fresh_one(name: str, turns: list[tuple[int, list[int]]]) -> None:
    """Nothing of what was cut off is a source any more, and nothing of what stands is lost."""
    drafter, text = opened(name), list[int]()
    for keep, more in turns:
        text = text[:keep]
        drafter.truncate(0, keep)
        for n in range(max(len(more) - 3, 1), len(more) + 1):
            assert guess(drafter, text + more[:n]) == guess(opened(name), text + more[:n])
        text += more


@every
@few
@given(TEXTS, TEXTS)
def test_two_conversations_side_by_side(name: str, one: list[int], other: list[int]) -> None:
    both = opened(name, 0, 1)
    asks = {0: one, 1: other}
    for _ in range(2):
        for seq, tokens in asks.items():
            assert guess(both, tokens, seq=seq) == guess(opened(name), tokens)


@every
def test_conversations_do_not_leak(name: str) -> None:
    """E13: what one conversation said is no guess in another, also after a fork or a reopening."""
    drafter = opened(name)
    secret = [7, 8, 9, 10, 11, 12]
    assert 10 in guess(drafter, [*secret, 7, 8, 9]).tokens
    drafter.open(1)
    assert guess(drafter, [5, 7, 8, 9], seq=1).draft_n == 0
    drafter.fork(0, 2, 0)
    assert guess(drafter, [5, 7, 8, 9], seq=2).draft_n == 0
    drafter.fork(0, 3, 4)
    assert not {11, 12} & set(guess(drafter, [*secret[:4], 7, 8, 9], seq=3).tokens)
    drafter.close(0)
    drafter.open(0)
    assert guess(drafter, [5, 7, 8, 9]).draft_n == 0


@every
def test_nothing_is_guessed_where_nothing_was_said_twice(name: str) -> None:
    drafter = opened(name)
    for n in range(1, 40):
        assert guess(drafter, range(n)).draft_n == 0
