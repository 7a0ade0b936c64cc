"""Screens as files: nothing is lost in them, and one cell that changed is found."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.tui.grid import REST, Cell, Grid, difference

STYLES = ("none", "bold #e0e0e0 on #121212", "reverse")
narrow = st.builds(lambda text, style: (Cell(text, style),), st.sampled_from("ab |│█"), st.sampled_from(STYLES))
wide = st.sampled_from(STYLES).map(lambda style: (Cell("猫", style), Cell(REST, style)))
rows = st.lists(narrow | wide, min_size=1, max_size=8).map(lambda parts: tuple(cell for part in parts for cell in part))
grids = st.lists(rows, min_size=1, max_size=6).map(lambda lines: Grid(tuple(lines)))

GRID = Grid((tuple(Cell(char, STYLES[0]) for char in "hello "), tuple(Cell(char, STYLES[1]) for char in "you   ")))


def changed(row: int, column: int, cell: Cell) -> Grid:
    cells = list(GRID.rows[row])
    cells[column] = cell
    return replace(GRID, rows=(*GRID.rows[:row], tuple(cells), *GRID.rows[row + 1 :]))


@given(grids)
def test_what_is_written_is_read(grid: Grid) -> None:
    assert Grid.read(grid.written()) == grid
    assert difference(grid, grid) == ""


def test_a_file_can_be_read_by_people() -> None:
    assert GRID.written().splitlines() == [
        "|hello",
        "|you",
        "",
        "styles",
        "a none",
        "b bold #e0e0e0 on #121212",
        "",
        "rows",
        "0x1 a6",
        "1x1 b6",
    ]


def test_a_letter_that_changed_is_found() -> None:
    assert difference(GRID, changed(0, 4, Cell("a", "none"))).splitlines() == [
        "row 0, 1 cells from column 4 to 4:",
        "  expected hello",
        "  shown    hella",
    ]


def test_a_colour_that_changed_is_found() -> None:
    assert difference(GRID, changed(1, 2, Cell("u", "reverse"))).splitlines() == [
        "row 1, 1 cells from column 2 to 2:",
        "  expected 'u' in bold #e0e0e0 on #121212",
        "  shown    'u' in reverse",
    ]


def test_a_row_that_is_missing_is_found() -> None:
    assert difference(GRID, Grid(GRID.rows[:1])).startswith("row 1, 6 cells from column 0 to 5:")
