"""Each filter against a slow reference that sorts and loops."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from localspec.errors import LocalspecError, ModelFault
from localspec.sampling import filters
from localspec.sampling.filters import Scores
from localspec.sampling.learners import AdaptiveP, Mirostat

Row = NDArray[np.float32]

# A coarse grid gives many ties; -inf is a banned token.
grid = st.one_of(st.integers(-40, 40).map(lambda n: n / 4), st.just(-math.inf))
rows = st.lists(grid, min_size=1, max_size=300).filter(lambda r: max(r) > -math.inf)


def array(values: list[float]) -> Row:
    return np.array(values, dtype=np.float32)


def ids(scores: Scores) -> list[int]:
    return list(range(len(scores.logits))) if scores.ids is None else scores.ids.tolist()


def mass_of(row: Row) -> list[float]:
    peak = max(float(x) for x in row)
    weights = [math.exp(float(x) - peak) for x in row]
    total = math.fsum(weights)
    return [w / total for w in weights]


def by_rank(keys: list[float]) -> list[int]:
    return sorted(range(len(keys)), key=lambda i: (-keys[i], i))


def slow_prefix(order: list[int], mass: list[float], p: float, *, strict: bool) -> list[int]:
    total, kept = 0.0, []
    for token in order:
        kept.append(token)
        total += mass[token]
        if total > p if strict else total >= p:
            break
    return sorted(token for token in kept if mass[token] > 0)


def clear(order: list[int], mass: list[float], p: float) -> bool:
    """No sum of leading masses is so near ``p`` that rounding could decide."""
    return bool(np.abs(np.cumsum([mass[i] for i in order]) - p).min() > 1e-9)


@given(rows, st.integers(1, 320))
def test_top_k(values: list[float], k: int) -> None:
    row = array(values)
    want = sorted(i for i in by_rank(values)[:k] if values[i] > -math.inf)
    got = filters.to_law(filters.top_k(Scores(None, row), k))
    assert got.ids.tolist() == want


@pytest.mark.parametrize("n", [1, 63, 64, 257, 4099])
@pytest.mark.parametrize("k", [1, 5, 40, 700])
@pytest.mark.parametrize("levels", [3, 10_000])
def test_top_k_on_longer_rows(n: int, k: int, levels: int) -> None:
    row = np.random.default_rng(n + k).integers(0, levels, n).astype(np.float32)
    want = sorted(np.argsort(-row, kind="stable")[:k].tolist())
    assert ids(filters.top_k(Scores(None, row), k)) == want


@given(rows, st.floats(0, 0.999))
def test_top_p(values: list[float], p: float) -> None:
    row = array(values)
    order, mass = by_rank(values), mass_of(row)
    assume(clear(order, mass, p))
    got = filters.to_law(filters.top_p(Scores(None, row), p))
    assert got.ids.tolist() == slow_prefix(order, mass, p, strict=False)


@given(rows, st.floats(0.01, 0.999))
def test_typical_p(values: list[float], p: float) -> None:
    row = array(values)
    mass = mass_of(row)
    surprise = [-math.log(m) if m > 0 else math.inf for m in mass]
    entropy = math.fsum(m * s for m, s in zip(mass, surprise, strict=True) if m > 0)
    distance = [round(abs(s - entropy), 9) for s in surprise]
    # Tokens on both sides of the entropy at one distance would be ordered by rounding.
    assume(len(set(distance)) == len(set(surprise)))
    order = by_rank([-d for d in distance])
    assume(clear(order, mass, p))
    got = filters.to_law(filters.typical_p(Scores(None, row), p))
    assert got.ids.tolist() == slow_prefix(order, mass, p, strict=True)


@pytest.mark.parametrize("spread", [0.01, 1.0, 4.0])
@pytest.mark.parametrize("p", [0.3, 0.9, 0.999])
def test_nucleus_and_typical_on_long_rows(spread: float, p: float) -> None:
    """Longer than the first look: flat rows need several looks, peaked ones a single one."""
    row = (np.random.default_rng(1).normal(size=9000) * spread).astype(np.float32)
    mass = mass_of(row)
    order = by_rank(row.tolist())
    assert ids(filters.top_p(Scores(None, row), p)) == slow_prefix(order, mass, p, strict=False)
    surprise = -np.log(mass)
    near = by_rank((-np.abs(surprise - mass @ surprise)).tolist())
    assert ids(filters.typical_p(Scores(None, row), p)) == slow_prefix(near, mass, p, strict=True)


@given(rows, st.floats(0.001, 1))
def test_min_p(values: list[float], p: float) -> None:
    row = array(values)
    mass = mass_of(row)
    assume(all(abs(m - p * max(mass)) > 1e-6 * max(mass) for m in mass if m != max(mass)))
    got = filters.min_p(Scores(None, row), p)
    assert ids(got) == [i for i, m in enumerate(mass) if m >= p * max(mass)]


@given(rows, st.floats(1e-3, 100))
def test_temperature_and_softmax(values: list[float], t: float) -> None:
    law = filters.to_law(filters.temperature(Scores(None, array(values)), t))
    live = [(i, x) for i, x in enumerate(values) if x > -math.inf]
    peak = max(values)
    norm = math.log(math.fsum(math.exp((x - peak) / t) for _, x in live))
    assert law.ids.tolist() == [i for i, _ in live]
    np.testing.assert_allclose(law.logp, [(x - peak) / t - norm for _, x in live], rtol=1e-9, atol=1e-12)
    assert np.isfinite(law.logp).all()


@given(rows, st.floats(0.1, 4))
def test_top_n_sigma(values: list[float], n: float) -> None:
    live = [x for x in values if x > -math.inf]
    bound = max(live) - n * statistics.pstdev(live)
    assume(all(abs(x - bound) > 1e-9 for x in live))
    got = filters.to_law(filters.top_n_sigma(Scores(None, array(values)), n))
    assert got.ids.tolist() == [i for i, x in enumerate(values) if x >= bound]


@given(rows, st.one_of(st.just(0.0), st.floats(0.001, 0.5)))
def test_xtc(values: list[float], threshold: float) -> None:
    mass = mass_of(array(values))
    assume(all(abs(m - threshold) > 1e-6 for m in mass if m > 0))
    top = [i for i in by_rank(values) if mass[i] >= threshold and values[i] > -math.inf]
    got = filters.to_law(filters.xtc(Scores(None, array(values)), threshold))
    assert got.ids.tolist() == [i for i, x in enumerate(values) if x > -math.inf and i not in top[:-1]]


def test_xtc_above_one_half_is_off() -> None:
    scores = Scores(None, array([1.0, 9.0]))
    assert filters.xtc(scores, 0.51) is scores


@pytest.mark.parametrize("spread", [0.5, 2.0])
def test_dynamic_temperature_of_sure_and_unsure_rows(spread: float) -> None:
    """A flat row gets the highest temperature, a sure one the lowest, which is 0 where the range goes below."""
    flat = filters.dynamic_temperature(Scores(None, array([3.0, 3.0, 3.0, -math.inf])), 1.0, spread, 1.0)
    np.testing.assert_allclose(flat.logits[:3], 3 / (1 + spread), rtol=1e-6)
    sure = filters.to_law(filters.dynamic_temperature(Scores(None, array([900.0, 0.0, 1.0])), 1.0, spread, 1.0))
    assert sure.ids.tolist()[0] == 0
    assert sure.p(0) == 1
    assert len(sure) == (1 if spread == 2.0 else 3)
    one = Scores(None, array([-math.inf, 2.0]))
    assert filters.dynamic_temperature(one, 1.0, spread, 1.0) is one


def test_coldest_temperature_is_finite() -> None:
    law = filters.to_law(filters.temperature(Scores(None, array([1.0, 3e38, 2.0])), 5e-324))
    assert law.p(1) == 1
    assert np.isfinite(law.logp).all()


@given(rows)
def test_filters_take_filtered_scores(values: list[float]) -> None:
    """The second filter of a chain names tokens by id, not by place."""
    row = array(values)
    first = filters.top_k(Scores(None, row), 20)
    second = filters.top_k(first, 7)
    assert ids(second) == ids(filters.top_k(Scores(None, row), 7))
    at, there = second.find(np.arange(len(row), dtype=np.int32))
    assert np.flatnonzero(there).tolist() == ids(second)
    assert at.tolist() == list(range(len(at)))


def test_filters_only_read() -> None:
    row = np.random.default_rng(0).normal(size=500).astype(np.float32)
    row.flags.writeable = False
    before = row.copy()
    scores = Scores(None, row)
    filters.to_law(scores)
    for step in CHAIN.values():
        filters.to_law(step(scores))
    assert (row == before).all()


CHAIN: dict[str, Callable[[Scores], Scores]] = {
    "none": lambda s: s,
    "top_k": lambda s: filters.top_k(s, 2),
    "top_k_folded": lambda s: filters.top_k(s, 5),
    "top_p": lambda s: filters.top_p(s, 0.5),
    "min_p": lambda s: filters.min_p(s, 0.5),
    "typical_p": lambda s: filters.typical_p(s, 0.5),
    "temperature": lambda s: filters.temperature(s, 0.5),
    "top_n_sigma": lambda s: filters.top_n_sigma(s, 1.0),
    "xtc": lambda s: filters.xtc(s, 0.1),
    "dynamic_temperature": lambda s: filters.dynamic_temperature(s, 0.8, 0.5, 1.0),
    "mirostat": Mirostat(tau=5.0, eta=0.1, mu=10.0).apply,
    "adaptive_p": AdaptiveP(target=0.3, decay=0.9, total=3.0, weight=10.0).apply,
}


@pytest.mark.parametrize("name", CHAIN)
@pytest.mark.parametrize("n", [10, 1000])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_nonsense_scores_are_a_fault_of_the_model(name: str, n: int, value: float) -> None:
    for bad in (np.arange(n) == n - 1, np.ones(n, dtype=bool)):
        row = np.where(bad, value, 0).astype(np.float32)
        with pytest.raises(ModelFault, match="no finite scores"):
            filters.to_law(CHAIN[name](Scores(None, row)))
        with pytest.raises(ModelFault, match="no finite scores"):
            filters.greedy(Scores(None, row))


@pytest.mark.parametrize("name", CHAIN)
@pytest.mark.parametrize("n", [10, 1000])
def test_all_banned(name: str, n: int) -> None:
    row = np.full(n, -np.inf, dtype=np.float32)
    with pytest.raises(LocalspecError, match="no token is left"):
        filters.to_law(CHAIN[name](Scores(None, row)))
    with pytest.raises(LocalspecError, match="no token is left"):
        filters.greedy(Scores(None, row))


def test_greedy_takes_the_lowest_id_of_equals() -> None:
    assert filters.greedy(Scores(None, array([0.0, 2.0, 2.0]))) == 1
    assert filters.greedy(Scores(np.array([4, 9], dtype=np.int32), array([1.0, 1.0]))) == 4


@given(st.integers(1, 9000), st.integers(1, 12), st.integers(2, 400))
def test_the_best_of_a_row(n: int, k: int, levels: int) -> None:
    """In order, of equals the lower id first; their probabilities stand to each other as softmax has them."""
    row = (np.random.default_rng(n).integers(0, levels, n) * 8 / levels).astype(np.float32)
    found = filters.best(Scores(None, row), k)
    assert [token for token, _ in found] == np.argsort(-row, kind="stable")[:k].tolist()
    assert [p / found[0][1] for _, p in found] == pytest.approx([math.exp(row[t] - row.max()) for t, _ in found])
    assert 0 < sum(p for _, p in found) <= 1 + 1e-6


@pytest.mark.parametrize("n", [300, 50000])
@pytest.mark.parametrize("lead", [16.0, 20.0])
def test_a_clear_favourite_has_its_share(n: int, lead: float) -> None:
    """Of a long row the tail is guessed, but not by much where it matters."""
    row = np.random.default_rng(5).normal(0, 2, n).astype(np.float32)
    row[n // 3], row[n // 7] = lead, lead - 1
    token, share = filters.best(Scores(None, row), 2)[0]
    assert token == n // 3
    assert share == pytest.approx(mass_of(row)[n // 3], abs=0.1)
