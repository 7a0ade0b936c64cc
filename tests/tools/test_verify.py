"""Verify over engines without weights: what is sound passes, every fault is found."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from localspec.backends.fake import FakeTarget, FakeVocab
from localspec.drafters.ngram import NgramSimple
from localspec.drafters.options import NgramOptions
from localspec.engine import Engine, answer
from localspec.report import finite
from localspec.tools.prompts import Prompt, built_in
from localspec.tools.verify.cases import GIVEN, SAMPLERS, SHAPES, cases
from localspec.tools.verify.chances import Text, chances, goodness, upper_tail
from localspec.tools.verify.judge import allowed_differences
from localspec.tools.verify.pairwise import covering
from localspec.tools.verify.run import Checked, Plan, record, verify
from localspec.tools.verify.table import terminal
from localspec.types import Exact, SpecParams
from tests.drafters.support import TEXT_DRAFTERS
from tests.engine.support import Gapless, draft_model
from tests.tools.faults import Leaking, Rounding, accept_all, accept_first_guess

PROMPTS = (Prompt("1", "a", "abcabcabcabc"), Prompt("2", "a", "the the the"), Prompt("3", "b", "zyxw"))


def engine(target: FakeTarget | None = None) -> Engine:
    target = target or FakeTarget(FakeVocab(40), seed=5, spread=2.0)
    return Engine(target, [draft_model(target, seed=5, noise=1.0), NgramSimple(NgramOptions(size_n=2))])


def exact(target: FakeTarget) -> Engine:
    one = engine(target)
    one.info = replace(one.info, exact=Exact(4, 2.0, 1.0))
    return one


def check(engine: Engine, *, samplers: tuple[str, ...] = ("greedy", "seeded"), seeds: int = 0) -> Checked:
    tried = cases(("draft-simple", "ngram-simple"), samplers, (GIVEN, *SHAPES), SpecParams(depth=2, mode="fixed"))
    return verify(engine, Plan(tried, PROMPTS, tokens=30, seeds=seeds))


# What is sound


def test_every_option_is_equal_where_nothing_rounds() -> None:
    checked = check(engine(), samplers=tuple(SAMPLERS), seeds=300)
    assert checked.verdict == "equal"
    assert (checked.control.flips, checked.control.moved) == (0, 0.0)
    assert {one.case.sampler for one in checked.cases} == set(SAMPLERS)
    assert all(len(one.prompts) == 3 and one.differences == 0 for one in checked.cases)
    assert sum(prompt.accepted for one in checked.cases for prompt in one.prompts) > 100
    assert [(one.rule, one.sound) for one in checked.chances] == [("draw", True), ("ratio", True)]
    assert all(one.accepted > 30 for one in checked.chances)


def test_every_drafter_meets_every_option() -> None:
    """The whole array: each drafter, and all of them together, with each way to draw and each shape."""
    target = FakeTarget(FakeVocab(40), seed=5, spread=2.0)
    drafters = [draft_model(target, seed=5, noise=1.0), *(make() for make in TEXT_DRAFTERS.values())]
    names = ("draft-simple", *TEXT_DRAFTERS)
    tried = cases(names, tuple(SAMPLERS), (GIVEN, *SHAPES), SpecParams(depth=2, mode="fixed"))
    assert len(tried) == (len(names) + 1) * len(SAMPLERS)
    checked = verify(Engine(target, drafters), Plan(tried, PROMPTS[:1], tokens=16, seeds=0))
    assert checked.verdict == "equal"
    held = {
        name: sum(one.accepted for case in checked.cases if name in case.case.drafters for one in case.prompts)
        for name in names
    }
    assert all(held.values()), held


def test_near_ties_under_rounding_are_no_fault() -> None:
    """Rows move with the shape of the pass by up to 1.3, and so do the control's: texts part, and that is rounding."""
    checked = check(engine(Rounding(FakeVocab(40), seed=5, spread=2.0, by=0.06)))
    found = [prompt for one in checked.cases for prompt in one.prompts if prompt.difference is not None]
    assert checked.control.moved > 0
    assert found
    assert checked.verdict == "rounding", terminal(checked, 120)
    for prompt in found:
        assert prompt.difference is not None
        assert prompt.difference.moved <= prompt.difference.bound
        assert prompt.difference.plain_gap <= 2 * prompt.difference.bound / 0.8
        assert prompt.difference.token != prompt.difference.plain_token


def test_an_exact_engine_needs_no_control() -> None:
    with exact(Gapless(FakeVocab(40), seed=5, spread=2.0)) as one:
        checked = check(one, seeds=50)
        assert isinstance(one.target, Gapless)
        assert one.target.repairs > 0
    assert checked.verdict == "equal"
    assert [test.rule for test in checked.chances] == ["draw"]
    assert "no control: with --exact nothing may differ" in terminal(checked, 120)


# What is not


class RoundingInOrder(Rounding, Gapless):
    pass


def test_an_exact_engine_may_not_even_round() -> None:
    with exact(RoundingInOrder(FakeVocab(40), seed=5, spread=2.0, by=0.06)) as one:
        checked = check(one)
    assert checked.verdict == "fault"
    found = [prompt.difference for one in checked.cases for prompt in one.prompts if prompt.difference is not None]
    # Its passes could be repeated, those that read again what was lost among them.
    assert found
    assert all(one.moved > 0 and one.lag == 0.0 for one in found)


def test_an_acceptance_that_takes_what_was_not_drawn_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer, "accept_by_draw", accept_first_guess)
    checked = check(engine())
    assert checked.verdict == "fault"
    found = next(prompt.difference for one in checked.cases for prompt in one.prompts if prompt.difference)
    assert found.why == "the token is not the one that its own pass draws"
    assert found.lag > 0 == found.moved
    assert (found.verdict, found.plain_lag) == ("fault", 0.0)
    text = terminal(checked, 120)
    assert "verdict: fault" in text
    assert f"position {found.position} has {found.token!r} for {found.plain_token!r}" in text.replace("\n", " ")


def test_a_wrong_mask_is_a_fault() -> None:
    checked = check(engine(Leaking(FakeVocab(40), seed=5, spread=2.0)))
    by_shape = {shape: {one.verdict for one in checked.cases if one.case.shape == shape} for shape in SHAPES}
    assert by_shape["chain"] == {"equal"}
    assert "fault" in by_shape["tree"]
    whys = {p.difference.why for one in checked.cases for p in one.prompts if p.difference is not None}
    assert whys == {"the pass moves logits by more than rounding does"}


def test_more_differences_than_the_control_has_are_a_fault() -> None:
    checked = check(engine(Rounding(FakeVocab(40), seed=5, spread=2.0, by=0.06)))
    one = next(one for one in checked.cases if one.differences)
    one.allowed = one.differences - 1
    assert (one.verdict, checked.verdict) == ("fault", "fault")
    assert "the control allows" in terminal(checked, 120)
    assert allowed_differences(100, 0, 400) == 3.0
    assert allowed_differences(100, 32, 400) == pytest.approx(8 + 9)


def test_a_rule_that_does_not_reject_bends_the_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chances(engine(), "ratio", 200).sound
    monkeypatch.setattr(answer, "accept_by_ratio", accept_all)
    found = chances(engine(), "ratio", 200)
    assert not found.sound
    assert chances(engine(), "draw", 200).sound


def test_data_hold_all() -> None:
    checked = check(engine(), seeds=20)
    data = json.loads(json.dumps(finite(record(checked))))
    assert data["verdict"] == "equal"
    control = checked.control
    assert control.positions > 40
    assert data["control"] == {"positions": control.positions, "flips": 0, "moved": 0.0, "bound": control.bound}
    assert len(data["cases"]) == len(checked.cases)
    assert [one["prompt"] for one in data["cases"][0]["prompts"]] == ["1", "2", "3"]


# Combinations


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_every_pair_is_covered_by_few_rows(sizes: list[int]) -> None:
    rows = covering(sizes)
    assert len(rows) == len(set(rows))
    for i, j in combinations(range(len(sizes)), 2):
        assert {(row[i], row[j]) for row in rows} == set(product(range(sizes[i]), range(sizes[j])))
    everything = 1
    for size in sizes:
        everything *= size
    assert len(rows) <= everything
    if len(sizes) == 1:
        assert rows == [(value,) for value in range(sizes[0])]


def test_a_covering_is_small_and_needs_values() -> None:
    assert len(covering((3, 15, 3))) == 45  # no fewer than the two largest factors have pairs
    assert len(covering((3, 3, 3))) <= 11
    with pytest.raises(ValueError, match="a value"):
        covering((2, 0))


def test_cases_meet_every_drafter_alone_and_all_together() -> None:
    tried = cases(("a", "b"), ("greedy", "top-k"), ("given", "tree"), SpecParams(depth=7, accept="ratio"))
    assert {one.drafters for one in tried} == {("a",), ("b",), ("a", "b")}
    assert {(one.sampler, one.shape) for one in tried} == set(product(("greedy", "top-k"), ("given", "tree")))
    # The promise is the rule `draw`'s.
    assert {one.spec.accept for one in tried} == {"draw"}
    assert {one.spec.depth for one in tried if one.shape == "given"} == {7}
    assert {one.drafters for one in cases(("a",), ("greedy",), ("tree",), SpecParams())} == {("a",)}


def test_prompts_come_along() -> None:
    assert len({one.text for one in built_in("localspec.tools.verify")}) == 10


# Chi-square


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 9, 16, 41])
@pytest.mark.parametrize("statistic", [0.01, 1.0, 7.5, 30.0, 200.0])
def test_the_tail_is_scipy_s(freedom: int, statistic: float) -> None:
    assert upper_tail(statistic, freedom) == pytest.approx(stats.chi2.sf(statistic, freedom), rel=1e-9, abs=1e-300)


def test_goodness_of_fit() -> None:
    laws: dict[Text, float] = {(1,): 0.5, (2,): 0.3, (3,): 0.19, (4,): 0.01}
    counts: dict[Text, int] = {(1,): 60, (2,): 25, (3,): 15}
    statistic, freedom, p = goodness(counts, laws)
    # What is rare is put together: 0.01 is expected once.
    theirs = stats.chisquare([60, 25, 15, 0], [50, 30, 19, 1])
    assert [statistic, p] == pytest.approx([theirs.statistic, theirs.pvalue])
    assert freedom == 3
    assert goodness({(9,): 1, (1,): 99}, laws)[2] == 0.0
    certain: dict[Text, float] = {(1,): 1.0}
    assert goodness({(1,): 50}, certain) == (0.0, 0, 1.0)
