from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from localspec.tui.bars import bar, spark, split
from localspec.tui.visible import cut, spelled, visible


@given(share=st.floats(-1, 2), width=st.integers(0, 60))
def test_a_bar_is_as_wide_as_it_should_be(share: float, width: int) -> None:
    blocks = bar(share, width)
    assert len(blocks) == cell_len(blocks) == width
    assert (share > 0 and width > 0) == bool(blocks.strip())


def test_a_bar_grows_by_eighths() -> None:
    assert [bar(share, 2) for share in (0, 1 / 16, 0.5, 9 / 16, 1)] == ["  ", "▏ ", "█ ", "█▏", "██"]


def test_a_row_of_heights_marks_what_is_not_there() -> None:
    assert spark([0.0, None, 0.5, 1.0]) == "▁·▅█"
    assert spark([]) == ""


@given(parts=st.lists(st.floats(0, 1e6), max_size=5), width=st.integers(0, 60))
def test_all_cells_are_shared_out(parts: list[float], width: int) -> None:
    cells = split(parts, width)
    assert len(cells) == len(parts)
    assert sum(cells) == (width if sum(parts) > 0 else 0)
    for part, count in zip(parts, cells, strict=True):
        assert sum(parts) <= 0 or abs(count - part / sum(parts) * width) < 1.001


def test_everything_in_a_token_can_be_seen() -> None:
    assert visible(b" a\tb\r\n") == "␣a⇥b␍↵"
    assert visible(b"\x1b[31m\x00") == "\\x1b[31m\\x00"
    assert visible("‮​\u2028".encode()) == "\\u202e\\u200b\\u2028"
    assert visible("\xa0".encode()) == "\\xa0"
    assert visible(b"\xf0\x9f\x98") == "\\xf0\\x9f\\x98"
    assert visible("猫".encode()) == "猫"
    assert visible("\u0301".encode()) == "◌\u0301"
    assert visible("e\u0301".encode()) == "e\u0301"
    assert visible(b"[/red]") == "[/red]"
    assert visible(b"") == "∅"
    assert spelled(" \n", keep=" ") == " ↵"


@given(piece=st.binary(max_size=20), cells=st.integers(1, 12))
def test_no_token_is_wider_than_it_may_be(piece: bytes, cells: int) -> None:
    text = visible(piece, cells)
    assert 0 < cell_len(text) <= cells
    assert text.isprintable()


def test_a_text_that_is_cut_says_so() -> None:
    assert cut("unbelievable", 6) == "unbel…"
    assert cut("猫猫猫", 4) == "猫 …"
    assert cut("猫猫", 4) == "猫猫"
