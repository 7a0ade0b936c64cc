"""The split of layers, with numbers that can be worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.plan import Part, Seconds, best_split, placed, speed, target_first

GB = 10**9


def line(seconds: float, row: float = 0.0) -> Seconds:
    """A pass of one row, and what each further row adds as a share of it."""
    return lambda rows: seconds * (1 + row * (rows - 1))


TARGET = Part((GB,) * 40, cpu=line(0.4, 0.1), device=line(0.04))
DRAFT = Part((GB // 5,) * 10, cpu=line(0.04), device=line(0.002))


def test_time_and_memory_are_lines_between_cpu_and_devices() -> None:
    assert [TARGET.seconds(1, moved) for moved in (0, 20, 40)] == pytest.approx([0.4, 0.22, 0.04])
    assert TARGET.seconds(3, 20) == pytest.approx((0.48 + 0.04) / 2)
    assert [TARGET.bytes(moved) for moved in (0, 1, 40)] == [0, GB, 40 * GB]


def test_all_devices_are_told_from_some_layers_there() -> None:
    part = Part.measured((GB,) * 40, line(0.4), line(0.31), 10)
    assert part.device(1) == pytest.approx(0.04)
    assert part.seconds(1, 10) == pytest.approx(0.31)
    assert Part.measured((GB,) * 40, line(0.4), line(0.1), 10).device(1) == 0.0


def test_the_speed_is_that_of_the_paper() -> None:
    """Two guesses at 0.7 bring 1 + 0.7 + 0.49 tokens for a pass of three rows and two of the draft model."""
    assert speed(TARGET, DRAFT, (40, 10), 2, 0.7) == pytest.approx(2.19 / (0.04 + 0.004))
    assert speed(TARGET, None, (0, 0), 0) == pytest.approx(1 / 0.4)


def test_everything_goes_to_devices_where_it_fits() -> None:
    best = best_split(TARGET, DRAFT, [100 * GB])
    assert (best.target, best.draft) == (40, 10)
    assert best.guesses == 6  # 3.06 tokens in 0.052 s


def test_a_small_draft_model_is_worth_layers_of_the_target() -> None:
    best, naive = best_split(TARGET, DRAFT, [20 * GB]), target_first(TARGET, DRAFT, [20 * GB])
    assert (best.target, best.draft) == (18, 10)
    assert (naive.target, naive.draft) == (20, 0)
    assert best.speed > 1.1 * naive.speed


def test_a_draft_model_as_large_as_its_gain_is_small_stays_on_the_cpu() -> None:
    large = Part((2 * GB,) * 10, cpu=line(0.04), device=line(0.03))
    best = best_split(TARGET, large, [20 * GB])
    assert (best.target, best.draft) == (20, 0)


def test_without_a_draft_model_the_target_takes_what_fits() -> None:
    best = best_split(TARGET, None, [15 * GB])
    assert (best.target, best.draft, best.guesses) == (15, 0, 0)


def test_layers_of_any_size_take_what_they_take() -> None:
    part = Part((5, 1, 2), cpu=line(1), device=line(0.2))
    assert [part.bytes(moved) for moved in range(4)] == [0, 5, 6, 8]
    assert part.seconds(1, 1) == pytest.approx(1 - 0.8 * 5 / 8)


def test_devices_are_filled_one_after_the_other_with_layers_in_a_row() -> None:
    target, draft = Part((5, 1, 2), line(1), line(1), on=(0, 1)), Part((3,), line(1), line(1), on=(1,))
    assert placed([(target, 3)], [3, 5]) == ((2, 1),)
    assert placed([(target, 2), (draft, 1)], [3, 8]) == ((1, 1), (1,))
    assert placed([(target, 2), (draft, 1)], [3, 7]) is None
    assert placed([(target, 1)], [0, 5]) == ((0, 1),)


def test_what_is_fixed_stays() -> None:
    best = best_split(TARGET, Part((GB // 5,) * 10, line(0.04), line(0.002), fixed=3), [20 * GB])
    assert (best.target, best.draft) == (19, 3)
    with pytest.raises(ValueError, match="empty"):
        best_split(TARGET, Part((GB // 5,) * 10, line(0.04), line(0.002), fixed=3), [GB // 2])


def test_devices_that_are_slower_get_nothing() -> None:
    slow = Part((GB // 10,) * 10, cpu=line(0.1), device=line(0.2))
    assert (best_split(slow, None, [100 * GB]).target, target_first(slow, None, [100 * GB]).target) == (0, 10)


@given(
    st.floats(0.001, 1),
    st.floats(0.001, 1),
    st.floats(0.001, 1),
    st.floats(0.001, 1),
    st.integers(0, 12),
    st.floats(0, 1),
)
def test_it_fits_and_nothing_is_faster(a: float, b: float, c: float, d: float, room: int, alpha: float) -> None:
    target, draft = Part((1,) * 8, line(a, 0.2), line(b)), Part((1, 0, 1, 0), line(c), line(d))
    best = best_split(target, draft, [room], alpha=alpha)
    assert target.bytes(best.target) + draft.bytes(best.draft) <= room
    assert best.speed >= target_first(target, draft, [room], alpha=alpha).speed
    assert best.speed >= max(speed(target, draft, (0, 0), n, alpha) for n in range(4))
