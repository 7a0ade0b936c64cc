"""Numbers as rows of blocks. Everything here is plain text of a known width in cells."""

from __future__ import annotations

from collections.abc import Sequence

_PARTS = " ▏▎▍▌▋▊▉█"  # of a cell, from the left
_HEIGHTS = "▁▂▃▄▅▆▇█"


def bar(share: float, width: int) -> str:
    """A bar of ``share`` (0…1) of ``width`` cells, filled up with blanks. What is not nothing can be seen."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    if share > 0 and width:
        eighths = max(eighths, 1)
    full, rest = divmod(eighths, 8)
    return (_PARTS[8] * full + (_PARTS[rest] if rest else "")).ljust(width)


def spark(values: Sequence[float | None]) -> str:
    """One cell for each value of 0…1; a dot where there is none."""
    return "".join("·" if value is None else _HEIGHTS[min(int(value * 8), 7)] for value in values)


def split(parts: Sequence[float], width: int) -> list[int]:
    """``width`` cells shared out by size; what rounding leaves goes to those that lost most. Nothing where all is 0."""
    total = sum(parts)
    if total <= 0:
        return [0] * len(parts)
    exact = [part / total * width for part in parts]
    cells = [int(share) for share in exact]
    by_loss = sorted(range(len(parts)), key=lambda i: cells[i] - exact[i])
    for i in by_loss[: width - sum(cells)]:
        cells[i] += 1
    return cells
