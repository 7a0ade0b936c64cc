"""Downloads told to the full screen, which may ask to give them up."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from time import monotonic, sleep
from typing import TYPE_CHECKING

from localspec.errors import Cancelled
from localspec.hub.names import Split
from localspec.hub.pace import Pace
from localspec.hub.sizes import human
from localspec.text.printable import one_line

if TYPE_CHECKING:
    from localspec.tui.engines import Listener

#: Seconds between two looks at the clock and at what the user wants.
INTERVAL = 0.1
GAUGE = 10  # cells


class ToldTransfer:
    """A `localspec.hub.Watcher` for a `Listener`. Every method but `end` raises `Cancelled` when the user has stopped
    it; what has arrived is kept then."""

    def __init__(self, listener: Listener, clock: Callable[[], float] = monotonic) -> None:
        self._listener = listener
        self._clock = clock
        self._name = ""
        self._pace = Pace(None, 0, 0.0)
        self._told = 0.0

    def begin(self, name: str, size: int | None, done: int) -> None:
        short, split = name.rpartition("/")[2], Split.of(name.rpartition("/")[2])
        self._name = one_line(short if split is None else f"{split.index}/{split.count} {short}")
        self._pace = Pace(size, done, self._clock())
        here = f", {human(done)} of it are here already" if done else ""
        self._listener.note(
            f"downloading {self._name} ({human(size) if size else 'size unknown'}{here});"
            " escape stops it and keeps what arrived"
        )
        self._tell(self._line())

    def advance(self, count: int) -> None:
        now = self._clock()
        self._pace.add(count, now)
        if now - self._told >= INTERVAL:
            self._told = now
            self._tell(self._line())

    def check(self) -> None:
        self._tell(f"checking {self._name} …")

    def end(self, whole: bool) -> None:
        if whole:
            self._listener.note(f"downloaded {self._name} ({human(self._pace.done)})")

    def note(self, text: str) -> None:
        self._listener.note(one_line(text))
        self._tell(self._line())

    def sleep(self, seconds: float) -> None:
        """Waits before another try."""
        until = self._clock() + seconds
        while (left := until - self._clock()) > 0:
            sleep(min(left, INTERVAL))
            self._tell(self._line())

    def _tell(self, line: str) -> None:
        if not self._listener.doing(line):
            raise Cancelled("the download is stopped, and what arrived is kept", hint="F5 goes on from there.")

    def _line(self) -> str:
        """The most important first: a narrow screen cuts it."""
        pace = self._pace
        if not self._name:
            return "waiting for the hub …"
        parts = [f"downloading {_gauge(pace.share)}{human(pace.done)}{f' of {human(pace.size)}' if pace.size else ''}"]
        if pace.rate is not None:
            parts.append(f"{human(max(pace.rate, 0.0))}/s")
        if pace.left is not None:
            parts.append(f"{_roughly(pace.left)} left")
        return " · ".join([*parts, self._name])


def _gauge(share: float | None) -> str:
    if share is None:
        return ""
    filled = int(GAUGE * share)
    return f"{'#' * filled}{'-' * (GAUGE - filled)} {100 * share:.0f} % · "


def _roughly(seconds: float) -> str:
    if seconds < 100:
        return f"{max(ceil(seconds), 0)} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
