"""Sliding windows: a rewind is only believed where every key of the window is still there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.real.support import opened, read, step

#: Rounding of this quantised model; keys that are missing move logits by more.
ROUNDING = 0.5


@pytest.fixture(scope="module")
def text() -> list[int]:
    # Numbers that hardly repeat: what a lost window would have said matters.
    return [2, *(int(token) for token in np.random.default_rng(3).integers(1000, 60000, 839))]


@pytest.mark.timeout(300)
def test_a_small_window_cache_tells_what_it_lost(gemma: Path, text: list[int]) -> None:
    with opened(gemma, n_ctx=1024, n_batch=64, n_ubatch=64, branches=0, swa_full=False) as target:
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
        for back in (400, 700):
            assert target.truncate(seq, 830 - back) == 0
            assert target.n_past(seq) == 0
            assert target.cells(seq) < cells / 20
            if back == 400:
                read(target, seq, text[:19])
                assert np.abs(step(target, seq, text[19]) - early).max() < ROUNDING
                read(target, seq, text[20:830])


@pytest.mark.timeout(300)
def test_a_full_cache_goes_back_as_far_as_you_like(gemma: Path, text: list[int]) -> None:
    with opened(gemma, n_ctx=1024, n_batch=64, n_ubatch=64, branches=0, swa_full=True) as target:
        seq = target.open()
        read(target, seq, text[:99])
        early = step(target, seq, text[99])
        read(target, seq, text[100:700])
        assert target.truncate(seq, 99) == 99
        assert np.abs(step(target, seq, text[99]) - early).max() < ROUNDING
