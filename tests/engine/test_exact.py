"""A target whose cells lie in order keeps less than was accepted; what is missing is read again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.backends.fake import FakeTarget, FakeVocab
from localspec.engine import Engine
from localspec.errors import UsageError
from localspec.types import Exact, SpecParams
from tests.drafters.support import TEXT_DRAFTERS
from tests.engine.support import GREEDY, Gapless, alone, answer, draft_model, plain, request

TREE = SpecParams(depth=4, nodes=12, width=3, mode="fixed")


def pair_of(seed: int, kind: type[FakeTarget]) -> FakeTarget:
    return kind(FakeVocab(24), seed=seed, spread=1.5)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 99), st.lists(st.integers(2, 20), min_size=2, max_size=12))
def test_the_text_is_the_same_and_nothing_is_lost(seed: int, prompt: Sequence[int]) -> None:
    wish = request(prompt, n=30, spec=TREE, sampling=replace(GREEDY, temperature=0.8, seed=seed))
    target = pair_of(seed, Gapless)
    drafters = [draft_model(target, seed=seed, noise=1.0), *(make() for make in TEXT_DRAFTERS.values())]
    with Engine(target, drafters) as engine:
        ours = answer(engine, wish)
        again = answer(engine, wish)
    assert ours.ids == again.ids == alone(pair_of(seed, FakeTarget), plain(wish)).ids


def test_what_lies_behind_a_rejected_guess_is_read_again() -> None:
    target = pair_of(3, Gapless)
    assert isinstance(target, Gapless)
    with Engine(target, [draft_model(target, seed=3, noise=2.0)]) as engine:
        wish = request([2, 3, 4], n=60, spec=TREE, sampling=GREEDY)
        before = target.passes
        ours = answer(engine, wish)
        more = target.passes - before - ours.stats.steps - 1  # one pass reads the prompt
    assert ours.stats.accepted > 0
    assert 0 < more <= target.repairs <= more + 1  # behind the end of an answer nothing is read


def test_an_exact_engine_refuses_another_text() -> None:
    target = pair_of(1, FakeTarget)
    with Engine(target) as engine:
        engine.info = replace(engine.info, exact=Exact(4, 2.0, 1.0))
        with pytest.raises(UsageError, match="the rule ratio"):
            engine.submit(request([2, 3], spec=SpecParams(accept="ratio")))
        answer(engine, request([2, 3], n=2))
