"""Few combinations that still try every value of one factor with every value of every other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product


def covering(sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Rows of indexes, one for each factor of so many values, in which every pair of values of two factors stands side
    by side. Greedy, as AETG (Cohen et al. 1997): the row that covers most of what is missing comes next, the first of
    equals. With fewer than three factors that is every combination.

    Raises:
        ValueError: a factor has no value.
    """
    if any(size < 1 for size in sizes):
        raise ValueError("a factor needs a value")
    if len(sizes) < 2:
        return [(value,) for size in sizes for value in range(size)]
    missing = {pair for row in product(*map(range, sizes)) for pair in _pairs(row)}
    rows: list[tuple[int, ...]] = []
    while missing:
        best = max(product(*map(range, sizes)), key=lambda row: len(missing & _pairs(row)))
        missing -= _pairs(best)
        rows.append(best)
    return rows


def _pairs(row: tuple[int, ...]) -> set[tuple[int, int, int, int]]:
    """Factor and value, twice."""
    return {(i, row[i], j, row[j]) for i, j in combinations(range(len(row)), 2)}
