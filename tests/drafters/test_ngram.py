"""Prompt lookup against brute force over the text."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.control.price import Limits
from localspec.drafters.ngram import NAME, NgramIndex, NgramSimple
from localspec.drafters.options import NgramOptions
from tests.drafters.support import guess, paths

few = settings(max_examples=50, deadline=None)
TEXTS = st.lists(st.integers(0, 2), min_size=1, max_size=30)


def drafter(**options: int) -> NgramSimple:
    ngram = NgramSimple(NgramOptions(**options))
    ngram.open(0)
    return ngram


def places(tokens: Sequence[int], n: int) -> list[int]:
    """Where the last ``n`` tokens end, the end of the text left out."""
    tail = list(tokens[-n:])
    return [end for end in range(n - 1, len(tokens) - 1) if list(tokens[end - n + 1 : end + 1]) == tail]


@few
@given(TEXTS, st.integers(1, 4), st.integers(1, 9))
def test_guesses_are_what_followed_earlier(tokens: list[int], n: int, depth: int) -> None:
    """All continuations and their beginnings, none past the end of the text."""
    tree = guess(drafter(size_n=n, places=99), tokens, Limits(depth, 999, 9))
    wanted = set()
    if len(tokens) >= n:
        for end in places(tokens, n):
            follows = tuple(tokens[end + 1 : end + 1 + depth])
            wanted |= {follows[:i] for i in range(1, len(follows) + 1)}
    assert paths(tree) == wanted
    assert tree.tokens[0] == tokens[-1]
    assert all(0 < score < 1 for score in tree.scores[1:])
    assert set(tree.sources[1:]) <= {NAME}


@few
@given(TEXTS, st.integers(0, 31), st.integers(1, 4))
def test_a_cut_leaves_no_key_behind(tokens: list[int], keep: int, n: int) -> None:
    cut, fresh = NgramIndex(n), NgramIndex(n)
    cut.extend(tokens)
    cut.truncate(keep)
    fresh.extend(tokens[:keep])
    assert (cut._keys, cut._ends) == (fresh._keys, fresh._ends)


def test_a_text_shorter_than_n_has_no_guess() -> None:
    for tokens in ([4], [4, 4], [4, 4, 4]):
        assert guess(drafter(size_n=4), tokens).draft_n == 0
    assert guess(drafter(size_n=3), [4, 4, 4]).draft_n == 0  # the only match would be the end itself
    assert paths(guess(drafter(size_n=3), [4, 4, 4, 4])) == {(4,)}


def test_a_guess_is_no_longer_than_size_m() -> None:
    assert max(guess(drafter(size_n=1, size_m=3), [5] * 20).depths) == 3


def test_a_match_must_have_been_seen_often_enough() -> None:
    tokens = [1, 2, 3, 1, 2, 4, 1, 2]
    assert guess(drafter(size_n=2, min_hits=2), tokens).draft_n > 0
    assert guess(drafter(size_n=2, min_hits=3), tokens).draft_n == 0


def test_longer_matches_weigh_more() -> None:
    """The chain follows the place whose past is most like the present."""
    tokens = [9, 8, 1, 2, 5, 7, 1, 2, 6, 9, 8, 1, 2]
    tree = guess(drafter(size_n=2), tokens, Limits(depth=1, nodes=9, width=1))
    assert tree.tokens == (2, 5)
    assert tree.scores[1] == 4 / 7  # match lengths 4 and 2, one unit of doubt


def test_only_recent_places_are_looked_at() -> None:
    tokens = [1, 2, 1, 3, 1, 4, 1]
    assert paths(guess(drafter(size_n=1, places=2), tokens, Limits(1, 9, 9))) == {(3,), (4,)}
