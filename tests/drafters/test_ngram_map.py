"""``ngram-map-k`` and ``ngram-map-k4v`` against brute force over the text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.control import Limits
from localspec.drafters.ngram import Lookup
from localspec.drafters.ngram_map import NgramMapK, NgramMapK4V
from localspec.drafters.options import NgramOptions
from tests.drafters.support import guess, paths

few = settings(max_examples=80, deadline=None)
TEXTS = st.lists(st.integers(0, 2), min_size=1, max_size=40)


def opened(kind: type[Lookup], **options: int) -> Lookup:
    drafter = kind(NgramOptions(**options))
    drafter.open(0)
    return drafter


def continuations(tokens: Sequence[int], n: int, depth: int) -> list[tuple[int, ...]]:
    """What followed the last ``n`` tokens earlier, the oldest first."""
    tail = list(tokens[-n:])
    ends = [end for end in range(n, len(tokens)) if list(tokens[end - n : end]) == tail]
    return [tuple(tokens[end : end + depth]) for end in ends] if len(tokens) >= n else []


@few
@given(TEXTS, st.integers(1, 3), st.integers(1, 9), st.integers(1, 3))
def test_a_chain_as_long_as_the_last_would_have_held(tokens: list[int], n: int, depth: int, hits: int) -> None:
    tree = guess(opened(NgramMapK, size_n=n, min_hits=hits), tokens, Limits(depth, 99, 3))
    found = continuations(tokens, n, depth)
    wanted: tuple[int, ...] = ()
    if len(found) >= hits:
        wanted = found[-1]
        if len(found) > 1:
            pairs = zip(found[-2], found[-1], strict=False)
            held = next((i for i, (a, b) in enumerate(pairs) if a != b), len(found[-1]))
            wanted = found[-1][: held + 1]
    assert tree.is_chain
    assert tree.tokens[1:] == wanted


@few
@given(TEXTS, st.integers(1, 2), st.integers(1, 4), st.integers(1, 4))
def test_the_four_most_frequent(tokens: list[int], n: int, depth: int, width: int) -> None:
    tree = guess(opened(NgramMapK4V, size_n=n), tokens, Limits(depth, 99, width))
    found = continuations(tokens, n, depth)
    values = Counter(value for value in found if len(value) == depth) or Counter(found)
    latest = {value: i for i, value in enumerate(found)}
    best = sorted(values, key=lambda value: (-values[value], -latest[value]))[:4]
    others = sum(values[value] for value in best[1:])
    if not best or (width == 1 and values[best[0]] < 3 * others):
        assert tree.draft_n == 0
    elif width >= 3:  # of three tokens
        assert paths(tree) == {value[:i] for value in best for i in range(1, len(value) + 1)}
        for value in best:
            share = sum(values[other] for other in best if other[0] == value[0])
            node = tree.children[0][value[0]]
            assert tree.scores[node] == share / (sum(values[other] for other in best) + 1)


def test_what_parted_the_last_time_is_doubted() -> None:
    tree = guess(opened(NgramMapK, size_n=2), [1, 2, 3, 4, 5, 1, 2, 3, 9, 5, 1, 2])
    assert tree.tokens == (2, 3, 9)
    assert tree.scores[1:] == (2 / 3, 0.5)


def test_a_chain_wants_a_clear_case() -> None:
    clear = [1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 4, 1, 2]
    chain = Limits(1, 9, 1)
    assert guess(opened(NgramMapK4V, size_n=2), clear, chain).tokens == (2, 3)
    assert guess(opened(NgramMapK4V, size_n=2), clear[3:], chain).draft_n == 0
    assert guess(opened(NgramMapK4V, size_n=2), clear[3:], Limits(1, 9, 2)).tokens == (2, 3, 4)
