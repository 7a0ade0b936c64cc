"""The cost curve of a model, measured when it is loaded."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from statistics import median

from localspec.backends.base import Target, TargetCaps, Work
from localspec.control.cost import CostCurve
from localspec.control.threads import UNDISTURBED
from localspec.spec.tree import TokenTree

#: Counts of rows that are measured; between them the curve is a line.
ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_ROUNDS = 3
_CHANGES = 7
_CELLS, _MANY = 128, 8  # a context long enough to be felt, and rows that feel it well
_READ = 1.0  # share of the budget that reading so much may take


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
    since neighbours only ever make a pass slower. Every count is measured twice in a row, and the second one counts.
    Takes about ``budget_s``, two rounds at least. Then what it costs to come back to one row from two; and what a row
    pays for the context it looks at, where a context is read soon enough (the larger the model, the less that matters).

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

    def timed(rows: int) -> tuple[float, bool]:
        """Seconds of a pass, and whether it got its CPU time."""
        start, burnt = clock(), cpu_clock()
        target.forward([Work(seq, TokenTree.chain([0] * rows))])
        seconds, burnt = clock() - start, cpu_clock() - burnt
        target.commit(seq, ())
        return seconds, burnt >= UNDISTURBED * seconds * threads

    one_s: list[float] = []
    own: dict[int, list[float]] = defaultdict(list)  # those that got their CPU time
    try:
        timed(1)  # buffers and pages are touched before anything counts
        began = clock()
        for round_ in range(_ROUNDS):
            if round_ > 1 and clock() - began > budget_s * round_ / (round_ + 1):
                break
            for n in counts:
                timed(n)
                seconds, undisturbed = timed(n)
                if n == 1:
                    one_s.append(seconds)
                if undisturbed:
                    own[n].append(seconds)
        if 2 * len(own) < len(counts):
            return CostCurve({1: min(one_s)})
        points = {n: min(times) for n, times in own.items()}
        change_s = _change_s(timed)
        cell_s = None
        if _MANY in points and _has_room(target.caps) and _seconds_to_read(points) <= _READ * budget_s:
            target.forward([Work.prompt(seq, [0] * _CELLS)])
            target.commit(seq, range(_CELLS))
            cell_s = _cell_s(points[_MANY], [timed(_MANY) for _ in range(_ROUNDS)])
    finally:
        target.close(seq)
    return CostCurve(points, change_s, cell_s)


def _change_s(timed: Callable[[int], tuple[float, bool]]) -> float:
    """Seconds that a pass of one row takes longer after one of two."""
    more = []
    for _ in range(_CHANGES):
        timed(2)
        (first, _), (second, _) = timed(1), timed(1)
        more.append(first - second)
    return max(median(more), 0.0)


def _has_room(caps: TargetCaps) -> bool:
    return caps.max_rows >= _CELLS and caps.n_ctx >= _CELLS + _MANY


def _seconds_to_read(points: Mapping[int, float]) -> float:
    """How long a context of `_CELLS` takes to be read, at most: by the pass of the most rows."""
    rows = max(points)
    return points[rows] * _CELLS / rows


def _cell_s(short_s: float, passes: Sequence[tuple[float, bool]]) -> float | None:
    """Seconds that a row pays for a cell, by passes of many rows in an empty context and in one of `_CELLS`."""
    times = [seconds for seconds, undisturbed in passes if undisturbed]
    return max(min(times) - short_s, 0.0) / (_MANY * _CELLS) if times else None
