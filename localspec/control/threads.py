"""How many threads a pass runs on, decided while it runs.

Threads of a pass wait for each other at every node of the graph, so on a busy machine many threads can be slower than
few. Whether the machine is busy shows in the pass itself: threads that own their cores burn ``wall · n`` seconds of CPU
time (waiting is spinning), threads that are pushed aside burn less. Only then is another count tried; on a quiet
machine nothing is. And more threads are tried only where cores have nothing to do: beside a program that never sleeps
a single pass of too many may take seconds.
"""

from __future__ import annotations

import os
from collections import defaultdict, deque
from collections.abc import Callable
from pathlib import Path

#: Share of its CPU time that a pass must get to count as undisturbed.
UNDISTURBED = 0.85

_SETTLING = 3  # passes before a disturbance is believed
_LOOK, _BETWEEN = 8, 32  # passes of a look at idle cores, and from the beginning of one to that of the next
_IDLE = 0.5  # of the cores that more threads would use


def core_count() -> int:
    """Cores this process may use, without hyper-threads."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        smt = Path("/sys/devices/system/cpu/smt/active").read_text(encoding="ascii").strip() == "1"
    except OSError:
        smt = False
    return max(available // 2 if smt else available, 1)


def idle_seconds() -> float | None:
    """Seconds that all cores of this machine together have had nothing to do since it started; ``None``: not told."""
    try:
        first = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0]
        return int(first.split()[4]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


class ThreadTuner:
    """Picks among all cores, half of them, … 1.

    A count's pace is the mean of its last passes, not their median: beside other programs most passes of many threads
    are fast, and a few so slow that they lose more than all others win.

    Args:
        most: threads on a quiet machine.
        busy: share of its CPU time that a pass must get to count as undisturbed.
        trial: passes a count is tried for, and of which a pace is the mean.
        patience: passes before a count that was slower is tried again.
        gain: a count must be faster by this factor to replace the current one.
        idle_s: as `idle_seconds`.
    """

    def __init__(
        self,
        most: int,
        *,
        busy: float = UNDISTURBED,
        trial: int = 8,
        patience: int = 128,
        gain: float = 1.05,
        idle_s: Callable[[], float | None] = idle_seconds,
    ) -> None:
        self._counts = _halvings(most)
        self._busy, self._trial, self._patience, self._gain = busy, trial, patience, gain
        self.threads = most
        self._chosen = most
        self._times: dict[tuple[int, int], deque[float]] = defaultdict(lambda: deque(maxlen=trial))
        self._disturbed = self._calm = 0  # passes in a row
        self._left = 0  # passes of the trial that is on
        self._since = 0  # passes since a count was chosen
        self._idle_s = idle_s
        self._spent = 0.0  # seconds of all passes
        self._look: tuple[float, float] | None = None  # seconds idle, and of all passes, when it began

    def observe(self, rows: int, wall: float, cpu: float) -> int:
        """Takes in one pass of ``rows`` rows (seconds of wall and CPU time); returns the threads for the next one."""
        bucket = rows.bit_length()
        self._times[self.threads, bucket].append(wall)
        self._spent += wall
        disturbed = cpu < self._busy * wall * self.threads
        self._disturbed, self._calm = (self._disturbed + 1, 0) if disturbed else (0, self._calm + 1)
        if self._left:
            self._try_on(bucket)
        elif len(self._counts) > 1:
            self._since += 1
            self._look_around(bucket)
        return self.threads

    def _look_around(self, bucket: int) -> None:
        """Moves to fewer threads that are known to be faster; tries what nothing is known of, or was left long ago."""
        here = self._counts.index(self._chosen)
        fewer, more = self._counts[here + 1 : here + 2], self._counts[max(here - 1, 0) : here]
        if self._disturbed >= _SETTLING:
            for count in fewer:
                if self._is_faster(count, bucket):
                    return self._choose(count)
                if self._since >= self._patience or not self._times[count, bucket]:
                    return self._start_trial(count, bucket)
        # Who has too little of few cores is not helped by more of them, and a single pass there may take seconds.
        calm = self._calm >= 2 * self._trial or self._since >= 8 * self._patience
        if more and calm and self._since >= self._patience and self._cores_are_idle(more[0] - self._chosen):
            self._start_trial(more[0], bucket)

    def _cores_are_idle(self, cores: int) -> bool:
        """Whether so many have little to do: now and then some passes are a look at them. Where the machine does not
        tell, they may have."""
        place = self._since % _BETWEEN
        if place not in (0, _LOOK):
            return False
        idle = self._idle_s()
        if idle is None:
            return True
        if place == 0:
            self._look = (idle, self._spent)
        elif self._look is not None:
            idle_then, spent_then = self._look
            return idle - idle_then >= _IDLE * cores * (self._spent - spent_then)
        return False

    def _start_trial(self, count: int, bucket: int) -> None:
        self._times.pop((count, bucket), None)  # old times say nothing about now
        self.threads, self._left = count, self._trial

    def _try_on(self, bucket: int) -> None:
        """Goes on with a trial; one that has used up what the chosen count takes for all of it has lost already."""
        self._left -= 1
        allowed = self._trial * (self._pace(self._chosen, bucket) or 0.0)
        if not self._left or sum(self._times[self.threads, bucket]) > allowed > 0:
            self._choose(self.threads if self._is_faster(self.threads, bucket) else self._chosen)

    def _choose(self, count: int) -> None:
        self.threads = self._chosen = count
        self._disturbed = self._left = self._since = 0
        self._look = None

    def _is_faster(self, count: int, bucket: int) -> bool:
        pace, mine = self._pace(count, bucket), self._pace(self._chosen, bucket)
        return pace is not None and (mine is None or pace * self._gain < mine)

    def _pace(self, count: int, bucket: int) -> float | None:
        """Seconds of a pass; ``None``: not known."""
        times = self._times[count, bucket]
        return sum(times) / len(times) if times else None


def _halvings(most: int) -> list[int]:
    counts = [max(most, 1)]
    while counts[-1] > 1:
        counts.append(counts[-1] // 2)
    return counts
