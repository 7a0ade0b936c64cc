"""Text broken between words while it comes, for terminals: they break it anywhere."""

from __future__ import annotations

import re
from collections.abc import Callable
from unicodedata import category, east_asian_width

#: Columns of the longest word that is surely kept whole. So much of a word, and no more, is held back near the end of a
#: line; elsewhere nothing is.
LONGEST = 24
_TAB = 8
_ENDLESS = 1 << 30
_FENCE = re.compile(r" {0,3}(```|~~~)")
#: The beginning of a line of a table, or of one that its indentation makes code and no item of a list.
_AS_IS = re.compile(r" *\||(    |\t)[ \t]*(?![ \t]|[-*+] |\d+[.)] )")
_HEAD = 32  # characters that tell what a line is


class Wrapper:
    """Puts line ends in place of the spaces before words that would not fit, and leaves out spaces at the end of a line
    that has no room for them. Code and tables keep their lines; what is written without spaces, such as Chinese, is
    left to the terminal.

    Args:
        columns: how wide the terminal is now; 0 if nobody knows.
    """

    def __init__(self, columns: Callable[[], int]) -> None:
        self._columns = columns
        self._fenced = False
        self._begin_line()

    def push(self, text: str) -> str:
        """What can be shown now that this has come."""
        width = self._width()
        if self._at > width:
            self._at %= width  # the window became smaller, and its lines were broken anew
        return "".join(self._pushed(char, width) for char in text)

    def end(self) -> str:
        """What was held back. The next text begins a line of its own."""
        rest = self._released(self._width())
        self._fenced = False
        self._begin_line()
        return rest

    def _width(self) -> int:
        return self._columns() or _ENDLESS

    def _begin_line(self) -> None:
        self._head = ""  # of the line as the text has it
        self._at = 0  # columns that are written of the line on the screen
        self._gap = ""  # spaces that came after them
        self._word = ""  # what is held back of the word after those

    def _pushed(self, char: str, width: int) -> str:
        if char == "\n":
            rest = self._released(width)
            self._fenced ^= _FENCE.match(self._head) is not None
            self._begin_line()
            return rest + char
        self._head += char if len(self._head) < _HEAD else ""
        if char in " \t":
            rest = self._released(width) if self._word else ""
            self._gap += char
            return rest
        self._word += char
        held = self._at + LONGEST > width and self._may_break() and cells(char) < 2 and self._fits(width)
        return "" if held else self._released(width)

    def _released(self, width: int) -> str:
        """The word after its gap, or in the next line if this one has no room for them."""
        text, fits = self._gap + self._word, self._fits(width)
        if not fits and not self._word:
            text = ""
        elif not fits and self._may_break():
            text, self._at = self._word, 0
            self._advance(text, width)
            text = "\n" + text
        else:
            self._advance(text, width)
        self._gap = self._word = ""
        return text

    def _may_break(self) -> bool:
        return bool(self._at and self._gap) and not self._fenced and not _AS_IS.match(self._head)

    def _fits(self, width: int) -> bool:
        return self._at + sum(map(cells, self._gap + self._word)) <= width

    def _advance(self, text: str, width: int) -> None:
        for char in text:
            if self._at + cells(char) > width:
                self._at = 0  # the terminal goes on in its next line
            self._at = min(self._at + cells(char), width)  # a line is full, whatever is too wide for it


def cells(char: str) -> int:
    """Columns that a terminal gives to a character; to a tab, at most."""
    if char == "\t":
        return _TAB
    if category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if east_asian_width(char) in "WF" else 1
