"""A long answer in sections: a Markdown widget that grows without end would be laid out, and its last block parsed and
coloured, as a whole whenever something is added."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

#: Characters after which a new section begins where a paragraph does.
ENOUGH = 1000
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_ITEM = re.compile(r"[-*+][ \t].*|\d{1,9}[.)][ \t].*")
_MARKS = frozenset("-*+0123456789")
#: How a line may begin that stands for itself: not what goes on with a list, a quotation or a table.
_BELONGS_TO_WHAT_WAS_BEFORE = frozenset(" \t-*+>|0123456789")


@dataclass(frozen=True, slots=True)
class Part:
    """Some text; ``begins``: of a new section. ``opener`` stands before it there: the line that opens a code block
    which goes on. ``in_list``: it begins with the next item of a list that the section before holds."""

    text: str
    begins: bool
    opener: str = ""
    in_list: bool = False


class Sections:
    """Cuts a stream of Markdown so that each section means what it meant in the whole.

    Between paragraphs where that is soon; between the items of a list even sooner, for all of a list is made anew when
    something is added to it; inside a code block, which goes on in the next section, and inside a paragraph that does
    not end, later.
    """

    def __init__(self, enough: int = ENOUGH) -> None:
        self._enough = enough
        self._size = 0  # of the section
        self._line = ""  # so far
        self._blank = False  # the line before is
        self._listing = False  # the line before is of a list
        self._fence = ""  # the marks that close the code block
        self._opener = ""  # the line that opened it

    def push(self, text: str) -> list[Part]:
        parts: list[Part] = []
        for piece in re.findall(r"[^\n]*\n|[^\n]+", text):
            begins = self._begins(piece)
            if begins:
                self._size = 0
            if parts and not begins:
                parts[-1] = replace(parts[-1], text=parts[-1].text + piece)
            else:
                parts.append(Part(piece, begins, self._opener if begins else "", begins and self._listing))
            self._take(piece)
        return parts

    def _begins(self, piece: str) -> bool:
        """Whether a new section begins with this piece of a line."""
        if self._line:
            return len(self._line) > 2 * self._enough and piece[0].isspace()
        if self._listing and piece[0] in _MARKS:
            return self._size > self._enough / 2
        if self._size < self._enough:
            return False
        if self._fence:
            return self._size > 2 * self._enough and piece[0] not in "`~"
        own = piece[0] not in _BELONGS_TO_WHAT_WAS_BEFORE
        return self._blank and (own or self._size > 3 * self._enough)

    def _take(self, piece: str) -> None:
        self._size += len(piece)
        self._line += piece
        if self._line.endswith("\n"):
            self._end_line(self._line[:-1])
            self._blank = not self._line.strip()
            self._line = ""

    def _end_line(self, line: str) -> None:
        match = _FENCE.fullmatch(line)
        if match is None:
            starts = _ITEM.fullmatch(line) is not None
            goes_on = self._listing and (not line.strip() or line[0] in " \t" or not self._blank)
            self._listing = not self._fence and (starts or goes_on)
            return
        self._listing = False
        marks, rest = match.groups()
        if not self._fence:
            if marks[0] == "~" or "`" not in rest:
                self._fence, self._opener = marks, line + "\n"
        elif marks.startswith(self._fence) and not rest.strip():
            self._fence = self._opener = ""


def code_blocks(text: str) -> list[str]:
    """What stands in the fences of a Markdown text; the last may be open."""
    blocks: list[str] = []
    fence = ""
    for line in text.removesuffix("\n").split("\n"):
        match = _FENCE.fullmatch(line)
        marks, rest = match.groups() if match else ("", "")
        if fence:
            if marks.startswith(fence) and not rest.strip():
                fence = ""
            else:
                blocks[-1] += line + "\n"
        elif marks and (marks[0] == "~" or "`" not in rest):
            fence = marks
            blocks.append("")
    return blocks
