"""The cost curve of a model, measured when it is loaded."""

from __future__ import annotations

import time
from collections import defaultdict
from statistics import median

from localspec.backends.base import Target, Work
from localspec.control.cost import CostCurve
from localspec.spec.tree import TokenTree

#: Counts of rows that are measured; between them the curve is a line.
ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_ROUNDS = 3


def measure(target: Target, most: int, *, budget_s: float = 1.5) -> CostCurve:
    """What passes of 1, 2, 3, … up to ``most`` rows take at a short context: the least of some rounds over all counts,
    since neighbours only ever make a pass slower. Every count is measured twice in a row: the first pass also shows
    what it costs to come from another count. Takes about ``budget_s``, two rounds at least.

    Raises:
        EngineError: a pass failed.
    """
    counts = [n for n in ROWS if n <= min(most, target.caps.max_outputs)]
    seq = target.open()
    first: dict[int, list[float]] = defaultdict(list)
    again: dict[int, list[float]] = defaultdict(list)
    try:
        target.forward([Work(seq, TokenTree.root(0))])  # buffers and pages are touched before anything counts
        target.commit(seq, ())
        began = time.perf_counter()
        for round_ in range(_ROUNDS):
            if round_ > 1 and time.perf_counter() - began > budget_s * round_ / (round_ + 1):
                break
            for n in counts:
                for times in (first, again):
                    start = time.perf_counter()
                    target.forward([Work(seq, TokenTree.chain([0] * n))])
                    times[n].append(time.perf_counter() - start)
                    target.commit(seq, ())
    finally:
        target.close(seq)
    points = {n: min(times) for n, times in again.items()}
    return CostCurve(points, max(median(min(first[n]) - points[n] for n in counts), 0.0))
