"""What a row pays for the context it looks at."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from itertools import combinations

_APART = 512  # cells: between closer contexts there is more noise than slope
_KEPT = 9  # passes remembered of a context
_FEW = 3  # that say what one takes
_EVERY = 16  # passes of a context between two looks at the slope


class ContextSlope:
    """Seconds of a row for every cell of context, from passes of one row at contexts of different lengths.

    Attention reads the whole context again for every row, while weights are read once for all of them. So the longer
    the context, the nearer the price of a row comes to that of a whole pass, and guesses that paid at its start pay no
    more. Passes of one row at a short context can hardly show it; the slope is the median of those between any two
    contexts that were met (Theil and Sen), each by the median of its passes: neighbours on the machine come and go.

    Args:
        start_s: seconds of a pass of one row with nothing to look at; 0: not known.
        row_s: seconds a cell as measured before any pass; ``None``: not measured.
    """

    def __init__(self, start_s: float, row_s: float | None = None) -> None:
        self._start_s = start_s
        self._measured = row_s
        self._passes: dict[int, deque[tuple[int, float]]] = defaultdict(lambda: deque(maxlen=_KEPT))
        self._since: dict[int, int] = defaultdict(int)
        self.row_s = row_s or 0.0  # seconds a cell

    def observe(self, cells: int, seconds: float) -> None:
        """A pass of one row that looked at ``cells``."""
        context = _context(cells)
        self._passes[context].append((cells, seconds))
        self._since[context] += 1
        if len(self._passes[context]) == _FEW or self._since[context] >= _EVERY:
            self._since[context] = 0
            self.row_s = max(self._find(), 0.0)

    def knows(self, cells: int) -> bool:
        """Whether a context at least half as long has been met often enough; a short one says nothing of the slope."""
        if cells < 2 * _APART:
            return True
        return any(at >= _context(cells // 2) and len(passes) >= _FEW for at, passes in self._passes.items())

    def _find(self) -> float:
        points = [(0, self._start_s)] if self._start_s else []
        points += [_middle(passes) for passes in self._passes.values() if len(passes) >= _FEW]
        slopes = sorted(
            ((bs - as_) / (b - a), abs(b - a)) for (a, as_), (b, bs) in combinations(points, 2) if abs(b - a) >= _APART
        )
        if self._measured is not None:
            slopes = sorted([*slopes, (self._measured, _APART)])
        half, seen = sum(weight for _, weight in slopes) / 2, 0.0
        for slope, weight in slopes:  # far ones count for more
            seen += weight
            if seen >= half:
                return slope
        return 0.0


def _context(cells: int) -> int:
    """Contexts whose passes are taken for alike, by powers of the root of two."""
    return round(2 * math.log2(max(cells, 1)))


def _middle(passes: deque[tuple[int, float]]) -> tuple[int, float]:
    cells, seconds = (sorted(column) for column in zip(*passes, strict=True))
    return cells[len(cells) // 2], seconds[len(seconds) // 2]
