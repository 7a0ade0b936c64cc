"""A screen as a grid of cells, in files that a person can read, and where two of them differ.

Text and style runs are compared, not SVG: an SVG has generated class names and a stylesheet, is twenty times as large,
and its difference tells nobody which cell changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest
from typing import Any

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.app import App

#: A wide character stands in the first of its two cells, nothing in the second.
REST = ""
_EDGE, _STYLES, _ROWS = "|", "styles", "rows"
_MOST_ROWS = 12  # that a difference shows


@dataclass(frozen=True, slots=True)
class Cell:
    """``style`` as Rich writes it: ``bold #e0e0e0 on #121212``."""

    text: str
    style: str


@dataclass(frozen=True, slots=True)
class Grid:
    rows: tuple[tuple[Cell, ...], ...]

    @classmethod
    def of(cls, app: App[Any]) -> Grid:
        """What stands on the screen now."""
        strips = app.screen._compositor.render_strips(app.size)
        return cls(tuple(tuple(_cells(strip))[: app.size.width] for strip in strips))

    @property
    def text(self) -> list[str]:
        return ["".join(cell.text for cell in row).rstrip() for row in self.rows]

    def written(self) -> str:
        """A file: the text, the styles that occur, and runs of cells that have the same; rows alike are told once."""
        names: dict[str, str] = {}
        runs = [_runs(row, names) for row in self.rows]
        lines = [f"{_EDGE}{line}" for line in self.text]
        lines += ["", _STYLES, *(f"{name} {style}" for style, name in names.items()), "", _ROWS]
        at = 0
        for run, same in groupby(runs):
            count = len(list(same))
            lines.append(f"{at}x{count} {run}")
            at += count
        return "\n".join(lines) + "\n"

    @classmethod
    def read(cls, written: str) -> Grid:
        """The grid that a file was `written` from."""
        shown, styles, runs = written.rstrip("\n").split("\n\n")
        names = dict(line.split(" ", 1) for line in styles.split("\n")[1:])
        per_row: list[list[str]] = []
        for line in runs.split("\n")[1:]:
            place, *parts = line.split(" ")
            row = [names[part[0]] for part in parts for _ in range(int(part[1:]))]
            per_row += [row] * int(place.split("x")[1])
        lines = [line.removeprefix(_EDGE) for line in shown.split("\n")]
        return cls(tuple(_joined(text, row) for text, row in zip(lines, per_row, strict=True)))


def _cells(segments: Iterable[Segment]) -> Iterator[Cell]:
    for segment in segments:
        style = str((segment.style or Style.null()).update_link(None))
        for char in segment.text:
            yield Cell(char, style)
            for _ in range(cell_len(char) - 1):
                yield Cell(REST, style)


def _runs(row: Sequence[Cell], names: dict[str, str]) -> str:
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    parts = []
    for style, cells in groupby(row, lambda cell: cell.style):
        name = names.setdefault(style, letters[len(names)])
        parts.append(f"{name}{len(list(cells))}")
    return " ".join(parts)


def _joined(text: str, styles: Sequence[str]) -> tuple[Cell, ...]:
    texts = [part for char in text for part in (char, *[REST] * (cell_len(char) - 1))]
    blanks = [" "] * (len(styles) - len(texts))
    return tuple(Cell(char, style) for char, style in zip([*texts, *blanks], styles, strict=True))


def difference(expected: Grid, shown: Grid) -> str:
    """Row by row what differs: both texts, or, where the texts are the same, the styles; nothing where all is equal."""
    lines: list[str] = []
    pairs = zip_longest(expected.rows, shown.rows, fillvalue=())
    different = [(at, one, other) for at, (one, other) in enumerate(pairs) if one != other]
    for at, one, other in different[:_MOST_ROWS]:
        columns = [x for x, (a, b) in enumerate(zip_longest(one, other)) if a != b]
        lines.append(f"row {at}, {len(columns)} cells from column {columns[0]} to {columns[-1]}:")
        texts = ["".join(cell.text for cell in row).rstrip() for row in (one, other)]
        if texts[0] == texts[1]:
            texts = [f"{row[columns[0]].text!r} in {row[columns[0]].style}" for row in (one, other)]
        lines += [f"  expected {texts[0]}", f"  shown    {texts[1]}"]
    if len(different) > _MOST_ROWS:
        lines.append(f"and {len(different) - _MOST_ROWS} more rows")
    return "\n".join(lines)
