"""``lookahead`` against a list of all that was said, and what rejected guesses teach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.backends.base import Rows
from localspec.control import Limits
from localspec.drafters.lookahead import Lookahead, Pool
from localspec.spec.tree import TokenTree
from localspec.types import SamplingParams, SpecParams
from tests.drafters.support import guess, paths
from tests.engine.support import alone, draft_model, fake, plain, request

few = settings(max_examples=80, deadline=None)
TOKENS = st.lists(st.integers(0, 3), min_size=1, max_size=8)


def rows(best: Mapping[int, int]) -> Rows:
    """The target says ``best`` after each node."""
    return cast(Rows, SimpleNamespace(logits=lambda node: np.eye(16, dtype=np.float32)[best[node]]))


def opened() -> Lookahead:
    drafter = Lookahead()
    drafter.open(0)
    return drafter


def said(events: Sequence[tuple[int, tuple[int, ...], int]], context: tuple[int, ...]) -> list[tuple[int, float]]:
    """Brute force: the newest four continuations of the longest context that is known, and their scores."""
    for length in (3, 2, 1):
        tail = context[-length:]
        if len(tail) == length:
            found = [token for _, known, token in events if known[-length:] == tail]
            distinct = list(dict.fromkeys(reversed(found)))[:4]
            if distinct:
                return [(token, length / (length + 1) / age) for age, token in enumerate(distinct, 1)]
    return []


@few
@given(st.lists(st.tuples(st.integers(0, 20), TOKENS, st.lists(st.tuples(TOKENS, st.integers(0, 3)), max_size=3))))
def test_the_pool(turns: list[tuple[int, list[int], list[tuple[list[int], int]]]]) -> None:
    pool, text = Pool(), list[int]()
    rejected: list[tuple[int, tuple[int, ...], int]] = []
    events: list[tuple[int, tuple[int, ...], int]] = []
    read = 0
    for keep, more, guesses in turns:
        pool.truncate(keep)
        if keep < read or any(event[0] > keep for event in rejected):
            rejected = [event for event in rejected if event[0] <= keep]
            events, read = list(rejected), 0
        text = [*text[:keep], *more]
        pool.read_on(text)
        events += [(i + 1, tuple(text[max(i - 3, 0) : i]), text[i]) for i in range(max(read, 1), len(text))]
        read = len(text)
        for branch, token in guesses:
            event = (len(text), tuple(branch[-3:]), token)
            pool.reject(*event)
            rejected.append(event)
            events.append(event)
        for context in ((0,), (1, 2), (3, 0, 1), tuple(text[-3:])):
            assert [(token, score) for token, score, _ in pool.continuations(context)] == said(events, context)


def test_a_rejected_branch_is_remembered() -> None:
    """7 → 9 is no part of the text."""
    drafter = opened()
    tree = TokenTree((2, 7, 9, 5), (-1, 0, 1, 0), (1.0,) * 4, ("", "a", "a", "a"))
    drafter.observe(0, 2, tree, [3], rows({0: 5, 1: 9, 2: 8, 3: 6}))
    assert paths(guess(drafter, [0, 1, 2, 5, 6, 7])) == {(9,), (9, 8)}
    drafter.truncate(0, 3)
    assert guess(drafter, [0, 1, 2, 7], Limits(1, 9, 1)).tokens == (7, 9), "the text it was said of still stands"
    drafter.truncate(0, 2)
    assert guess(drafter, [0, 1, 7]).draft_n == 0


def test_rejected_branches_do_not_leak() -> None:
    drafter = opened()
    drafter.open(1)
    drafter.observe(0, 2, TokenTree.chain([2, 7]), [], rows({1: 9}))
    assert guess(drafter, [0, 1, 2, 7], seq=1).draft_n == 0
    drafter.fork(0, 2, 3)
    assert guess(drafter, [0, 1, 2, 7], seq=2).draft_n == 0
    drafter.close(0)
    drafter.open(0)
    assert guess(drafter, [0, 1, 2, 7]).draft_n == 0


def test_only_rejected_rows_are_read() -> None:
    """The others are the text itself."""

    def never(node: int) -> Any:
        raise AssertionError(f"row {node} was read")

    opened().observe(0, 0, TokenTree.chain([2, 7, 8]), [1, 2], cast(Rows, SimpleNamespace(logits=never)))


def test_it_lives_on_the_guesses_of_others() -> None:
    """A draft model that is often wrong shows what the target says after wrong tokens."""
    target = fake(30, seed=3)
    spec = SpecParams(depth=4, nodes=12, width=3)
    wish = request([3, 4, 5], sampling=SamplingParams(temperature=0.8, seed=1, ignore_eos=True), spec=spec, n=200)
    got = alone(target, wish, [Lookahead(), draft_model(target, seed=3, noise=5.0)])
    assert got.told == alone(fake(30, seed=3), plain(wish)).told
    assert {one.name for one in got.stats.by_source if one.accepted} == {"lookahead", "draft-simple"}
