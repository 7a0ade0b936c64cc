"""The cost curve of a model, measured when it is loaded."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from statistics import median

from localspec.backends.base import Target, Work
from localspec.control.cost import CostCurve
from localspec.control.threads import UNDISTURBED
from localspec.spec.tree import TokenTree

#: Counts of rows that are measured; between them the curve is a line.
ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_ROUNDS = 3


def measure(
    target: Target,
    most: int,
    *,
    threads: int = 0,
    budget_s: float = 1.5,
    clock: Callable[[], float] = time.perf_counter,
    cpu_clock: Callable[[], float] = time.process_time,
) -> CostCurve:
    """What passes of 1, 2, 3, … up to ``most`` rows take at a short context: the least of some rounds over all counts,
    since neighbours only ever make a pass slower. Every count is measured twice in a row: the first pass also shows
    what it costs to come from another count. Takes about ``budget_s``, two rounds at least.

    Beside busy neighbours all passes take about as long, whatever their rows, so that guesses would look free. Passes
    that did not get their CPU time say nothing then, and where too few did, rows are priced by a rule of thumb until
    the first guesses show what they cost.

    Args:
        threads: of a pass that runs on the CPU alone; 0: nothing can be said of its CPU time.

    Raises:
        EngineError: a pass failed.
    """
    counts = [n for n in ROWS if n <= min(most, target.caps.max_outputs)]
    seq = target.open()
    first: dict[int, list[float]] = defaultdict(list)
    again: dict[int, list[float]] = defaultdict(list)
    own: dict[int, list[float]] = defaultdict(list)  # of ``again``: those that got their CPU time
    try:
        target.forward([Work(seq, TokenTree.root(0))])  # buffers and pages are touched before anything counts
        target.commit(seq, ())
        began = clock()
        for round_ in range(_ROUNDS):
            if round_ > 1 and clock() - began > budget_s * round_ / (round_ + 1):
                break
            for n in counts:
                for times in (first, again):
                    start, burnt = clock(), cpu_clock()
                    target.forward([Work(seq, TokenTree.chain([0] * n))])
                    seconds, burnt = clock() - start, cpu_clock() - burnt
                    times[n].append(seconds)
                    if times is again and burnt >= UNDISTURBED * seconds * threads:
                        own[n].append(seconds)
                    target.commit(seq, ())
    finally:
        target.close(seq)
    if 2 * len(own) < len(counts):
        return CostCurve({1: min(again[1])})
    points = {n: min(times) for n, times in own.items()}
    return CostCurve(points, max(median(min(first[n]) - points[n] for n in points), 0.0))
