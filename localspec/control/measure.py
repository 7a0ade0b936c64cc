"""The cost curve of a model, measured when it is loaded."""

from __future__ import annotations

import time
from collections import defaultdict

from localspec.backends.base import Target, Work
from localspec.spec.tree import TokenTree

_ROUNDS = 3


def measure(target: Target, most: int, *, budget_s: float = 1.0) -> dict[int, float]:
    """Rows → seconds of a pass, for 1, 2, 3, … up to ``most`` rows at a short context: the least of some rounds over
    all counts, since neighbours only ever make a pass slower. Takes about ``budget_s``, two rounds at least.

    Raises:
        EngineError: a pass failed.
    """
    counts = [n for n in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64) if n <= min(most, target.caps.max_outputs)]
    seq = target.open()
    times = defaultdict(list)
    try:
        target.forward([Work(seq, TokenTree.root(0))])  # buffers and pages are touched before anything counts
        target.commit(seq, ())
        began = time.perf_counter()
        for round_ in range(_ROUNDS):
            if round_ > 1 and time.perf_counter() - began > budget_s * round_ / (round_ + 1):
                break
            for n in counts:
                start = time.perf_counter()
                target.forward([Work(seq, TokenTree.chain([0] * n))])
                times[n].append(time.perf_counter() - start)
                target.commit(seq, ())
    finally:
        target.close(seq)
    return {n: min(spent) for n, spent in times.items()}
