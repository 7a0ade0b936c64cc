"""``ngram-mod`` against brute force over the text."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.control import Limits
from localspec.drafters.ngram_mod import HashPool, NgramMod
from localspec.drafters.options import ModOptions
from tests.drafters.support import guess

few = settings(max_examples=80, deadline=None)
TEXTS = st.lists(st.integers(0, 2), max_size=40)


def opened(corpus: Sequence[Sequence[int]] = (), **options: int) -> NgramMod:
    drafter = NgramMod(ModOptions(**options), corpus)
    drafter.open(0)
    return drafter


def after(texts: Sequence[Sequence[int]], run: Sequence[int]) -> int | None:
    """What came last after ``run``, in the last of ``texts`` that has it."""
    n, found = len(run), None
    for text in texts:
        for i in range(n, len(text)):
            if list(text[i - n : i]) == list(run):
                found = text[i]
    return found


@few
@given(TEXTS.filter(bool), st.lists(TEXTS, max_size=2), st.integers(1, 3), st.integers(1, 9), st.integers(0, 12))
def test_a_chain_of_what_came_last(tokens: list[int], corpus: list[list[int]], n: int, depth: int, n_min: int) -> None:
    tree = guess(opened(corpus, n_match=n, n_min=n_min), tokens, Limits(depth, 99, 3))
    wanted = list(tokens)
    while len(tokens) >= n and len(wanted) < len(tokens) + max(depth, n_min):
        run = wanted[-n:]
        token = after([tokens], run)
        token = after(corpus, run) if token is None else token
        if token is None:
            break
        wanted.append(token)
    known = wanted[len(tokens) :]
    assert tree.is_chain
    assert list(tree.tokens[1:]) == (known[:depth] if len(known) >= n_min else [])
    assert tree.scores[1:] == tuple((n + i) / (n + i + 1) for i in range(tree.draft_n))


@few
@given(TEXTS, st.integers(0, 41), st.integers(1, 4))
def test_a_pool_that_was_cut_is_a_fresh_one(tokens: list[int], keep: int, n: int) -> None:
    cut, fresh = HashPool(n), HashPool(n)
    cut.read_on(tokens)
    cut.truncate(keep)
    fresh.read_on(tokens[:keep])
    assert (cut.after, cut._trail) == (fresh.after, fresh._trail)


def test_hashes_roll() -> None:
    pool, text = HashPool(24), [(7**i) % 50_000 for i in range(200)]
    for i in range(24, 199):
        assert pool.roll(pool.key(text[i - 24 : i]), text[i - 24], text[i]) == pool.key(text[i - 23 : i + 1])


def test_order_and_zeros_count() -> None:
    pool = HashPool(3)
    keys = {pool.key(run) for run in ((0, 0, 0), (0, 0), (0,), (1, 2, 3), (3, 2, 1), (0, 1, 2), (1, 2))}
    assert len(keys) == 7


def test_guesses_are_no_longer_than_asked_for() -> None:
    assert guess(opened(n_match=2, n_max=3), [5] * 20).draft_n == 3


def test_the_corpus_stays_as_it_is() -> None:
    drafter = opened([[4, 5, 6, 7]], n_match=2)
    drafter.open(1)
    assert guess(drafter, [4, 5, 9, 4, 5]).tokens[:4] == (5, 9, 4, 5), "the conversation comes first"
    assert guess(drafter, [1, 4, 5], seq=1).tokens == (5, 6, 7)
