"""Repetitions against a search at every place, breakers against a scan, the penalty against its formula."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.sampling import Breakers
from localspec.sampling.dry import Repeats, dry
from localspec.sampling.filters import Scores
from tests.sampling import reference

texts = st.lists(st.integers(0, 4), max_size=40)
breaker_sets = st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=3).map(tuple), max_size=3)


def found(repeats: Repeats, allowed: int) -> dict[int, int]:
    ids, lengths = repeats.continuing(allowed)
    assert ids.tolist() == sorted(set(ids.tolist()))
    return dict(zip(ids.tolist(), lengths.tolist(), strict=True))


@given(texts, texts, st.integers(0, 30), breaker_sets, st.integers(0, 4))
def test_repetitions_at_every_position(
    prompt: list[int], output: list[int], size: int, breakers: list[tuple[int, ...]], allowed: int
) -> None:
    repeats, text = Repeats.of(prompt, size, Breakers.of(breakers)), list(prompt)
    for token in [*output, None]:
        window = text[-size:] if size else []
        assert repeats.tokens.tolist() == window
        assert found(repeats, allowed) == reference.repetitions(window, allowed, breakers)
        if token is not None:
            repeats, text = repeats.push(token), [*text, token]


@given(texts, texts, st.integers(1, 30))
def test_pushed_or_begun_with_is_the_same(prompt: list[int], output: list[int], size: int) -> None:
    pushed, breakers = Repeats.of(prompt, size, Breakers.of()), Breakers.of()
    for token in output:
        pushed = pushed.push(token)
    begun = Repeats.of([*prompt, *output], size, breakers)
    places = np.arange(len(begun.tokens))
    assert begun.lengths.tolist() == np.minimum(pushed.lengths, places).tolist()


@given(texts, st.integers(1, 8), st.integers(0, 4), st.integers(0, 4))
def test_push_leaves_the_old_one_alone(prompt: list[int], size: int, one: int, other: int) -> None:
    repeats = Repeats.of(prompt, size, Breakers.of([(2,)]))
    before = found(repeats, 1)
    a, b = repeats.push(one), repeats.push(other)
    assert found(repeats, 1) == before
    for token, after in ((one, a), (other, b)):
        assert found(after, 1) == reference.repetitions([*prompt, token][-size:], 1, [(2,)])


def test_an_example_and_its_breakers() -> None:
    """``a b c c b c y a b c``: c would go on with 3 tokens, y with 2, b with 1."""
    a, b, c, y = range(4)
    text = [a, b, c, c, b, c, y, a, b, c]
    assert found(Repeats.of(text, 64, Breakers.of()), 1) == {b: 1, c: 3, y: 2}
    assert found(Repeats.of(text, 64, Breakers.of([(a,)])), 1) == {b: 1, c: 2, y: 2}
    assert found(Repeats.of(text, 64, Breakers.of([(a, b)])), 1) == {b: 1, c: 1, y: 1}
    assert found(Repeats.of(text, 64, Breakers.of([(y,)])), 2) == {c: 3}
    assert found(Repeats.of(text, 64, Breakers.of([(y,), (y, a)])), 1) == {b: 1, c: 2}
    assert found(Repeats.of(text, 4, Breakers.of()), 0) == {a: 0, b: 0, c: 0}
    assert found(Repeats.of(text, 0, Breakers.of()), 0) == {}


@pytest.mark.parametrize(("base", "multiplier"), [(1.75, 0.8), (1.0, 3.0), (2.0, 1.0)])
def test_the_penalty(base: float, multiplier: float) -> None:
    text, row = [1, 2, 3, 1, 2, 3, 1, 2], np.array([0.5, 1.5, -1.0, 2.5, 9.0], dtype=np.float32)
    row.flags.writeable = False
    repeats = Repeats.of(text, 64, Breakers.of())
    assert found(repeats, 2) == {3: 5}
    got = dry(Scores(None, row), repeats, multiplier=multiplier, base=base, allowed=2).logits
    np.testing.assert_allclose(got, [0.5, 1.5, -1.0, 2.5 - multiplier * base**3, 9.0], rtol=1e-6)
    some = np.array([1, 3], dtype=np.int32)
    part = dry(Scores(some, row[some]), repeats, multiplier=multiplier, base=base, allowed=2)
    assert part.logits.tolist() == got[some].tolist()
    beyond = Scores(None, row[:3])
    assert dry(beyond, repeats, multiplier=multiplier, base=base, allowed=2) is beyond


def test_long_repetitions_leave_finite_scores_and_bans_stay() -> None:
    row = np.array([-np.inf, 1.0], dtype=np.float32)
    for token in (0, 1):
        repeats = Repeats.of([token] * 3000, 3000, Breakers.of())
        got = dry(Scores(None, row), repeats, multiplier=1e9, base=1e9, allowed=2).logits
        assert got[0] == -np.inf
        assert np.isfinite(got[1])
        assert (got[1] < -1e20) == bool(token)


def test_a_long_text_of_one_token() -> None:
    """Compared at every place this would be half a thousand million comparisons."""
    repeats = Repeats.of([7] * 32_768, 32_768, Breakers.of())
    for _ in range(20):
        repeats = repeats.push(7)
    assert found(repeats, 2) == {7: 32_767}
