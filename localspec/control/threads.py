"""How many threads a pass runs on, decided while it runs.

Threads of a pass wait for each other at every node of the graph, so on a busy machine many threads can be slower than
few. Whether the machine is busy shows in the pass itself: threads that own their cores burn ``wall · n`` seconds of CPU
time (waiting is spinning), threads that are pushed aside burn less. Only then is another count tried; on a quiet
machine nothing is.
"""

from __future__ import annotations

import os
from collections import defaultdict, deque
from pathlib import Path
from statistics import median

#: Share of its CPU time that a pass must get to count as undisturbed.
UNDISTURBED = 0.85


def core_count() -> int:
    """Cores this process may use, without hyper-threads."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        smt = Path("/sys/devices/system/cpu/smt/active").read_text(encoding="ascii").strip() == "1"
    except OSError:
        smt = False
    return max(available // 2 if smt else available, 1)


class ThreadTuner:
    """Picks among all cores, half of them, … 1.

    Args:
        most: threads on a quiet machine.
        busy: share of its CPU time that a pass must get to count as undisturbed.
        trial: passes a count is tried for.
        patience: passes between trials, so that trying costs little where the machine stays busy.
        gain: a count must be faster by this factor to replace the current one.
    """

    def __init__(
        self, most: int, *, busy: float = UNDISTURBED, trial: int = 3, patience: int = 128, gain: float = 1.05
    ) -> None:
        self._counts = _halvings(most)
        self._busy, self._trial, self._patience, self._gain = busy, trial, patience, gain
        self.threads = most
        self._chosen = most
        self._times: dict[tuple[int, int], deque[float]] = defaultdict(lambda: deque(maxlen=2 * trial + 1))
        self._disturbed = 0
        self._since_trial = 0
        self._wait = 2 * trial  # the first passes after loading are no measure
        self._queue: list[int] = []  # counts still to be tried, one entry a pass

    def observe(self, rows: int, wall: float, cpu: float) -> int:
        """Takes in one pass of ``rows`` rows (seconds of wall and CPU time); returns the threads for the next one."""
        bucket = rows.bit_length()
        self._times[self.threads, bucket].append(wall)
        if self._queue:
            self._queue.pop(0)
            if not self._queue:
                self._choose(bucket)
        else:
            self._since_trial += 1
            self._disturbed = self._disturbed + 1 if cpu < self._busy * wall * self.threads else 0
            if self._wants_trial():
                self._start_trial(bucket)
        self.threads = self._queue[0] if self._queue else self._chosen
        return self.threads

    def _wants_trial(self) -> bool:
        if len(self._counts) == 1:
            return False
        fewer = self._chosen < self._counts[0]
        return self._since_trial >= self._wait and (fewer or self._disturbed >= self._trial)

    def _start_trial(self, bucket: int) -> None:
        # Old times say nothing about now; the current count is tried again with the others.
        for count in self._counts:
            self._times.pop((count, bucket), None)
        self._queue = [count for count in self._counts for _ in range(self._trial)]

    def _choose(self, bucket: int) -> None:
        times = {count: median(self._times[count, bucket]) for count in self._counts if self._times[count, bucket]}
        self._since_trial = self._disturbed = 0
        self._wait = self._patience
        if not times:
            return
        best = min(times, key=lambda count: times[count])
        if self._chosen not in times or times[best] * self._gain < times[self._chosen]:
            self._chosen = best


def _halvings(most: int) -> list[int]:
    counts = [max(most, 1)]
    while counts[-1] > 1:
        counts.append(counts[-1] // 2)
    return counts
