"""Bytes of single tokens as text in which everything can be seen."""

from __future__ import annotations

import unicodedata

from rich.cells import cell_len, set_cell_size

#: One cell each.
_SIGNS = {" ": "␣", "\n": "↵", "\r": "␍", "\t": "⇥"}
#: Categories of characters that show nothing, move what is beside them or break the line.
_UNSEEN = {"Zs", "Zl", "Zp"}


def visible(piece: bytes, cells: int | None = None) -> str:
    """A token by itself: blanks and breaks as signs, control characters and broken bytes as escapes, a mark that goes
    onto a letter with a ring to carry it. Never empty.

    Args:
        cells: what it may take at most, 1 or more; a longer one is cut and ends with dots.
    """
    text = spelled(piece.decode("utf-8", "backslashreplace")) or "∅"
    return text if cells is None else cut(text, cells)


def cut(text: str, cells: int) -> str:
    """Text of at most so many cells."""
    return text if cell_len(text) <= cells else set_cell_size(text, cells - 1) + "…"


def spelled(text: str, *, keep: str = "") -> str:
    """Text with signs and escapes for what cannot be seen; characters of ``keep`` stay."""
    carrier = "◌" if text and unicodedata.category(text[0]).startswith("M") else ""
    return carrier + "".join(char if char in keep else _seen(char) for char in text)


def _seen(char: str) -> str:
    if char in _SIGNS:
        return _SIGNS[char]
    category = unicodedata.category(char)
    if category.startswith("C") or category in _UNSEEN:
        return char.encode("unicode_escape").decode()
    return char
