"""Sliding windows: a rewind is only believed where every key of the window is still there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from localspec.backends.base import Work
from localspec.spec.tree import TokenTree
from localspec.types import GenerationRequest
from tests.real.support import GREEDY, PLAIN, TREE, answer, opened, read, running, step

#: Rounding of this quantised model; keys that are missing move logits by more.
ROUNDING = 0.5


@pytest.fixture(scope="module")
def text() -> list[int]:
    # Numbers that hardly repeat: what a lost window would have said matters.
    return [2, *(int(token) for token in np.random.default_rng(3).integers(1000, 60000, 839))]


@pytest.mark.timeout(300)
def test_a_small_window_cache_tells_what_it_lost(gemma_beginning: Path, text: list[int]) -> None:
    with opened(gemma_beginning, n_ctx=1024, n_batch=64, n_ubatch=64, branches=0, swa_full=False) as target:
        assert target.model.n_swa == 512
        seq = target.open()
        read(target, seq, text[:19])
        early = step(target, seq, text[19])
        read(target, seq, text[20:829])
        late = step(target, seq, text[829])
        read(target, seq, text[830:])
        cells = target.cells(seq)
        assert target.truncate(seq, len(text) - 4) == len(text) - 4
        read(target, seq, text[-4:])
        assert target.truncate(seq, 829) == 829
        assert np.abs(step(target, seq, text[829]) - late).max() < ROUNDING
        for _ in range(3):  # rejected guesses cost no keys
            target.forward([Work(seq, TokenTree.chain([1000, 2000, 3000, 4000]))])
            target.commit(seq, ())
        assert target.truncate(seq, 829) == 829
        assert np.abs(step(target, seq, text[829]) - late).max() < ROUNDING
        for back in (400, 700):
            assert target.truncate(seq, 830 - back) == 0
            assert target.n_past(seq) == 0
            assert target.cells(seq) < cells / 20
            if back == 400:
                read(target, seq, text[:19])
                assert np.abs(step(target, seq, text[19]) - early).max() < ROUNDING
                read(target, seq, text[20:830])


def test_a_small_window_cache_shares_no_cells(gemma_beginning: Path) -> None:
    with opened(gemma_beginning, n_ctx=1024, sequences=2, branches=15, swa_full=False) as target:
        # Old cells that two ids hold would never be free again, and the cache would fill up for good.
        assert (target.caps.trees, target.caps.max_leaves, target.caps.rollback) == (False, 2, None)
        seq = target.open()
        read(target, seq, [2, *range(1000, 1020)])
        assert target.n_past(target.fork(seq, 20)) == 0


def test_chains_over_a_small_window_cache(gemma_beginning: Path) -> None:
    wish = GenerationRequest(prompt="a b c d e f a b c d e f a b", sampling=GREEDY, max_tokens=8, spec=TREE)
    with running(gemma_beginning, spec_types=("ngram-simple",), swa_full=False) as engine:
        assert engine.info.warnings == (
            "drafts are chains: a sliding-window cache that is not kept whole cannot hold branches",
        )
        ours = answer(engine, replace(wish, trace=True))
    assert ours.stats.draft_n > 0
    assert all(step.tree is None or list(step.tree.parents) == list(range(-1, step.draft_n)) for step in ours.steps)


@pytest.mark.timeout(300)
def test_a_full_cache_goes_back_as_far_as_you_like(gemma_beginning: Path, text: list[int]) -> None:
    with opened(gemma_beginning, n_ctx=1024, n_batch=64, n_ubatch=64, branches=0, swa_full=True) as target:
        seq = target.open()
        read(target, seq, text[:99])
        early = step(target, seq, text[99])
        read(target, seq, text[100:700])
        assert target.truncate(seq, 99) == 99
        assert np.abs(step(target, seq, text[99]) - early).max() < ROUNDING


@pytest.mark.timeout(300)
def test_another_turn_over_a_small_window_cache_is_as_a_cold_one(gemma_beginning: Path, text: list[int]) -> None:
    """What was answered before lies outside of the window by then: it is read again, not believed."""
    first = GenerationRequest(tokens=tuple(text[:800]), sampling=GREEDY, max_tokens=4)
    back = replace(first, tokens=(*text[:60], *text[800:820]))
    small = {"n_ctx": 1024, "n_batch": 64, "n_ubatch": 64}
    with running(gemma_beginning, None, spec_types=("ngram-simple",), swa_full=False, **small) as engine:
        answer(engine, first)
        again = answer(engine, back)
    with running(gemma_beginning, None, spec_types=("none",), **small) as engine:
        cold = answer(engine, replace(back, spec=PLAIN))
    assert again.started.cache_n == 0
    assert again.ids == cold.ids
