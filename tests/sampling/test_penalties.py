"""The window against a recount, the penalties against the formula."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.sampling.filters import Scores
from localspec.sampling.penalties import Window, penalise

texts = st.lists(st.integers(0, 9), max_size=40)


def tally(window: Window) -> dict[int, int]:
    return dict(zip(window.ids.tolist(), window.counts.tolist(), strict=True))


@given(texts, texts, st.integers(0, 30))
def test_window_counts_the_last_tokens(prompt: list[int], output: list[int], size: int) -> None:
    window, text = Window.of(prompt, size), list(prompt)
    for token in [*output, None]:
        kept = text[-size:] if size else []
        assert window.tokens.tolist() == kept
        assert tally(window) == dict(Counter(kept))
        assert window.ids.tolist() == sorted(set(kept))
        if token is not None:
            window, text = window.push(token), [*text, token]


@given(texts, st.integers(1, 8), st.integers(0, 9), st.integers(0, 9))
def test_push_leaves_the_old_window_alone(prompt: list[int], size: int, one: int, other: int) -> None:
    window = Window.of(prompt, size)
    before = (window.tokens.tolist(), tally(window))
    a, b = window.push(one), window.push(other)
    assert (window.tokens.tolist(), tally(window)) == before
    assert tally(a) == dict(Counter([*prompt, one][-size:]))
    assert tally(b) == dict(Counter([*prompt, other][-size:]))


@given(
    st.lists(st.floats(-20, 20, width=32), min_size=10, max_size=10),
    texts,
    st.floats(0.5, 2),
    st.floats(-2, 2),
    st.floats(-2, 2),
)
def test_penalties(logits: list[float], text: list[int], repeat: float, frequency: float, presence: float) -> None:
    want = []
    for token, logit in enumerate(logits):
        count = text.count(token)
        if count:
            logit = logit / repeat if logit > 0 else logit * repeat
            logit -= count * frequency + presence
        want.append(logit)
    row = np.array(logits, dtype=np.float32)
    options = {"repeat": repeat, "frequency": frequency, "presence": presence}
    got = penalise(Scores(None, row), Window.of(text, 64), **options)
    np.testing.assert_allclose(got.logits, want, rtol=1e-6, atol=1e-5)
    assert row.tolist() == logits
    some = np.array([1, 4, 8], dtype=np.int32)
    part = penalise(Scores(some, row[some]), Window.of(text, 64), **options)
    assert part.logits.tolist() == got.logits[some].tolist()


def test_banned_tokens_stay_banned() -> None:
    row = np.array([-np.inf, 1.0], dtype=np.float32)
    got = penalise(Scores(None, row), Window.of([0, 0, 1], 3), repeat=0.5, frequency=-9.0, presence=-9.0)
    assert got.logits[0] == -np.inf


def test_ids_beyond_the_row_are_passed_over() -> None:
    row = np.ones(3, dtype=np.float32)
    got = penalise(Scores(None, row), Window.of([2, 7], 8), repeat=2.0, frequency=0.0, presence=0.0)
    assert got.logits.tolist() == pytest.approx([1, 1, 0.5])
