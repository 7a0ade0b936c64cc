"""Medians of pairs, and how sure they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

#: Resamplings; the ends of a 95 % interval of so many move by about a hundredth of its width.
DRAWS = 2000
SEED = 20260
LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of some numbers, its bootstrap interval at `LEVEL`, and the least and the most of them."""

    median: float
    low: float
    high: float
    least: float
    most: float


def spread(groups: Sequence[Sequence[float]], *, draws: int = DRAWS, seed: int = SEED) -> Spread:
    """The spread of numbers that come in groups, one a prompt: rounds of one prompt are more alike than prompts.

    Percentile bootstrap (Efron 1979) in two stages (Davison and Hinkley 1997, 3.8): groups are drawn with replacement,
    then numbers within each drawn group. The seed is fixed, so that equal numbers give equal intervals.

    Raises:
        ValueError: there are no numbers.
    """
    samples = [np.asarray(group, float) for group in groups if len(group)]
    if not samples:
        raise ValueError("a median needs a number")
    rng = np.random.default_rng(seed)
    medians = np.empty(draws)
    for at in range(draws):
        chosen = rng.integers(len(samples), size=len(samples))
        drawn = (samples[i] for i in chosen)
        medians[at] = _median(np.concatenate([one[rng.integers(len(one), size=len(one))] for one in drawn]))
    low, high = np.quantile(medians, ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    numbers = [float(number) for sample in samples for number in sample]
    return Spread(float(median(numbers)), float(low), float(high), min(numbers), max(numbers))


def _median(numbers: NDArray[np.float64]) -> float:
    """What `np.median` gives, without its many ways: of few numbers those take most of the time."""
    ordered = np.sort(numbers)
    half = len(ordered) // 2
    return float((ordered[half] + ordered[~half]) / 2)


def middle(numbers: Sequence[float | None]) -> float | None:
    """The median of the numbers that are there."""
    there = [number for number in numbers if number is not None]
    return median(there) if there else None
