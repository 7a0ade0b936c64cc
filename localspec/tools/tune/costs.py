"""What passes of a model cost on this machine, by thread count."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from localspec.backends.base import Target, Work
from localspec.control import CostCurve
from localspec.control.measure import measure
from localspec.control.threads import UNDISTURBED
from localspec.spec.tree import TokenTree

#: Rows that are timed by thread count: a plain step, and one with some guesses.
ROWS = (1, 4)
#: Up to so many cores every count is tried, above that eighths of them.
_ALL = 8
#: A count must be faster than the usual one by this factor: it is then fixed, and a fixed one does not give way to
#: neighbours.
CLEARLY = 1.05
_FEWEST_ROUNDS, _MOST_ROUNDS = 3, 12


@dataclass(frozen=True, slots=True)
class Costs:
    """Of one model. ``by_threads``: threads → seconds of passes of each of `ROWS`; ``threads``: the count to fix,
    ``None`` where the usual one is as good; ``curve``: rows → seconds, at the count that will be used. ``busy``: others
    took processor time from the passes at the usual count, so that none is fixed."""

    by_threads: Mapping[int, Mapping[int, float]]
    threads: int | None
    curve: CostCurve
    busy: bool = False


def counts(cores: int) -> tuple[int, ...]:
    """Thread counts to try, the most first."""
    most = max(cores, 1)
    return tuple(sorted({-(-most * part // _ALL) for part in range(1, _ALL + 1)}, reverse=True))


def costs(
    target: Target,
    tried: Sequence[int],
    most_rows: int,
    *,
    budget_s: float,
    clock: Callable[[], float] = time.perf_counter,
    cpu_clock: Callable[[], float] = time.process_time,
) -> Costs:
    """Times a model that is loaded alone.

    Args:
        tried: thread counts, the usual one first; none of them where the user fixed it.
        most_rows: end of the curve.
        budget_s: for thread counts and for the curve, each; some rounds are made in any case.

    Raises:
        EngineError: a pass failed.
    """
    timed, share = _by_threads(target, tried, budget_s, clock, cpu_clock) if len(tried) > 1 else ({}, 1.0)
    busy = share < UNDISTURBED
    best = None if busy else _best(timed)
    if timed:
        target.set_threads(tried[0] if best is None else best)
    return Costs(timed, best, measure(target, most_rows, budget_s=budget_s), busy)


def _by_threads(
    target: Target,
    tried: Sequence[int],
    budget_s: float,
    clock: Callable[[], float],
    cpu_clock: Callable[[], float],
) -> tuple[dict[int, dict[int, float]], float]:
    """The least of some rounds over all counts: neighbours only ever make a pass slower. The first pass of its kind
    prepares threads and graph and does not count. And the share of their CPU time that passes at the first count got:
    threads with cores of their own wait by spinning."""
    best = {count: dict.fromkeys(ROWS, float("inf")) for count in tried}
    shares: list[float] = []
    seq, began = target.open(), clock()
    try:
        for round_ in range(_MOST_ROUNDS):
            if round_ >= _FEWEST_ROUNDS and clock() - began > budget_s * round_ / (round_ + 1):
                break
            for count in tried:
                target.set_threads(count)
                for rows in ROWS:
                    times = []
                    for _ in range(3):
                        start, cpu = clock(), cpu_clock()
                        target.forward([Work(seq, TokenTree.chain([0] * rows))])
                        times.append(clock() - start)
                        if count == tried[0] and len(times) > 1:
                            shares.append((cpu_clock() - cpu) / max(times[-1] * count, 1e-12))
                        target.commit(seq, ())
                    best[count][rows] = min(best[count][rows], *times[1:])
    finally:
        target.close(seq)
    return best, median(shares)


def _best(timed: Mapping[int, Mapping[int, float]]) -> int | None:
    """The count that is clearly faster than the first, at one row and at several together."""
    if not timed:
        return None
    usual, *_ = timed

    def gain(count: int) -> float:
        gain = 1.0
        for rows in ROWS:
            gain *= timed[usual][rows] / max(timed[count][rows], 1e-12)
        return float(gain ** (1 / len(ROWS)))

    best = max(timed, key=gain)
    return best if best != usual and gain(best) > CLEARLY else None
