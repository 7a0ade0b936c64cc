"""What a pass costs on this machine, now."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping
from statistics import median_high

from localspec.control.slope import ContextSlope

_SPAN = 7  # passes whose median is the level: one that was pushed aside says nothing about the next
_ALIKE = 64
_SLOW = 0.05  # how far a surprising pass moves the shape; further at first
_LARGEST_SURPRISE = 2.0
_FEW_CHANGES, _KEPT_CHANGES = 12, 65  # passes whose median says what a change costs
_EVERY = 8  # passes between two looks at them
_MOST_CHANGE = 0.2  # of the shortest pass
#: Cells more or less that make it another context.
JUMP = 512
_FRESH = 3  # passes in which only its slope is learnt


class CostCurve:
    """Seconds of a verify pass by its number of rows.

    Three things are told apart. The *shape*, how much more n rows cost than one, belongs to model and build: measured
    at load, corrected slowly. The *slope* is what every row pays for the context it looks at (`ContextSlope`). The
    *level* is today's: it rises with the neighbours on the machine, and follows every pass, whatever its rows. So the
    price of a row stays right where plain passes are rare, and the time of a plain pass where drafts are the rule.

    A pass of another number of rows than the one before takes longer: backends prepare a graph for a shape and use it
    again while the shape stays. How much longer is best seen where plain decoding is taken up again.

    Args:
        points: rows → seconds at a short context, as measured at load; may be empty, then the first passes teach.
        change_s: seconds more after a pass of another number of rows.
        cell_s: seconds that every row pays for a cell of context; ``None``: the passes will show.
    """

    def __init__(
        self, points: Mapping[int, float] | None = None, change_s: float = 0.0, cell_s: float | None = None
    ) -> None:
        self._points = _plausible(points or {})
        self._bases: list[float] = []  # by rows, filled as asked for
        self._shape: dict[int, float] = {}
        self._corrections: dict[int, float] = {}  # by rows, filled as asked for until the shape changes
        self._seen: Counter[int] = Counter()
        # Measured beside busy neighbours it may come out as anything.
        self._change_s = min(change_s, _MOST_CHANGE * min(self._points.values(), default=0.0))
        self._slope = ContextSlope(self._points.get(1, 0.0), cell_s)
        # Of the last passes of one row, over what was expected of them without a change: by whether there was none.
        self._alone: dict[bool, deque[float]] = {same: deque(maxlen=_KEPT_CHANGES) for same in (True, False)}
        self._single = 0  # passes of one row
        self._cells, self._fresh = 0, 0
        self._level = 1.0
        self._ratios: deque[float] = deque(maxlen=_SPAN)  # of the last passes: seconds over what the shape says
        self._rows, self._alike = 0, _ALIKE  # of the last pass; how many before it had as many

    def seconds(self, rows: int) -> float:
        """Expected seconds of a pass of ``rows`` in the context of the last one; 0 while nothing is known."""
        if not self._points:
            return 0.0
        while len(self._bases) <= rows:
            self._bases.append(self._base(len(self._bases)))
        reading = rows * self._slope.row_s * self._cells
        correction = self._corrections.get(rows)
        if correction is None:
            correction = self._corrections[rows] = self._correction(rows)
        return (self._bases[rows] * correction + reading) * self._level

    def _correction(self, rows: int) -> float:
        """What was learnt of the shape at so many rows; else half of what made the nearest number of several dearer."""
        if rows in self._shape or rows == 1:
            return self._shape.get(rows, 1.0)
        nearest = min((n for n in self._shape if n > 1), key=lambda n: abs(n - rows), default=rows)
        return math.sqrt(max(self._shape.get(nearest, 1.0), 1.0))

    @property
    def known(self) -> bool:
        """Whether passes of one row have shown what rows cost in the context of the last one."""
        return self._slope.knows(self._cells)

    @property
    def change_s(self) -> float:
        """Seconds that a pass takes longer after one of another number of rows."""
        return self._change_s * self._level

    def change(self, rows: int, home: int) -> float:
        """Seconds that a pass of so many rows costs for being of another number than the last one, beyond a pass of
        ``home`` rows. Who leaves home pays for the way back too, and goes home for nothing."""
        if rows in (home, self._rows):
            return 0.0
        return (2 if self._rows == home else 1) * self.change_s

    def settled(self, rows: int) -> bool:
        """Whether a pass of so many rows comes after one of as many."""
        return self._rows in (0, rows)

    def observe(self, rows: int, seconds: float, cells: int = 0) -> None:
        """One pass, with so many cells of context in use."""
        if rows == 1 and self._rows:
            self._learn_change(seconds)
        if not self.settled(rows):
            seconds = max(seconds - self.change_s, seconds / 2)
        if not self._points:
            self._points[rows] = seconds
        if abs(cells - self._cells) > JUMP:
            self._fresh = _FRESH + 1
            self._ratios.clear()  # what was not known of the slope is in them
        self._fresh = max(self._fresh - 1, 0)
        self._cells = cells
        self._alike = self._alike + 1 if self.settled(rows) else 0
        self._rows = rows
        if rows == 1:
            self._slope.observe(cells, seconds)
        if not self._fresh:
            self._correct(rows, seconds)

    def _learn_change(self, seconds: float) -> None:
        if not (expected := self.seconds(1)):
            return
        self._alone[self.settled(1)].append(seconds / expected)
        self._single += 1
        if self._single % _EVERY == 0 and all(len(ratios) >= _FEW_CHANGES for ratios in self._alone.values()):
            without, more = (median_high(self._alone[same]) for same in (True, False))
            self._change_s = min(max(more - without, 0.0), _MOST_CHANGE) * expected / self._level

    def _correct(self, rows: int, seconds: float) -> None:
        expected = max(self.seconds(rows), 1e-9)
        self._ratios.append(self._level * seconds / expected)
        self._level = median_high(self._ratios)
        if self._alike < _ALIKE:  # with one count alone, shape and level cannot be told apart
            surprise = min(max(seconds / expected, 1 / _LARGEST_SURPRISE), _LARGEST_SURPRISE)
            self._seen[rows] += 1
            self._shape[rows] = self._correction(rows) * surprise ** max(_SLOW, 1 / (self._seen[rows] + 2))
            self._corrections.clear()

    def _base(self, rows: int) -> float:
        """Between measured points a straight line; beyond them the last two points go on, at least flat. Below them the
        first two do, and a pass takes at least its rows' share of one of more rows."""
        known = list(self._points)
        if len(known) == 1:
            # A guess until more is known: two thirds of a pass are the weights, read once for all rows.
            return self._points[known[0]] * (2 + rows) / (2 + known[0])
        above = next((i for i, n in enumerate(known) if n >= rows), len(known) - 1)
        right = max(above, 1)
        a, b = known[right - 1], known[right]
        rise = max(self._points[b] - self._points[a], 0.0) / (b - a)
        return max(self._points[a] + rise * (rows - a), self._points[a] * min(rows / a, 1.0))


def _plausible(points: Mapping[int, float]) -> dict[int, float]:
    """The points without what only a disturbed measurement can say: a pass of many rows takes no longer than several
    passes of fewer, and no less than one of fewer."""
    known: dict[int, float] = {}
    for rows in sorted(points):
        most = min((seconds * -(-rows // n) for n, seconds in known.items()), default=points[rows])
        known[rows] = min(max(points[rows], max(known.values(), default=0.0)), most)
    return known
