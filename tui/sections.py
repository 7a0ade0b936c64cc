"""A long text in sections: Markdown that grows without end would be parsed, coloured and laid out as a whole whenever
something is added to it."""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, replace
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_ITEM = re.compile(r"[-*+][ \t].*|\d{1,9}[.)][ \t].*")
_MARKS = frozenset("-*+0123456789")
#: How a line may begin that stands for itself: not what goes on with a list, a quotation or a table.
_BELONGS_TO_WHAT_WAS_BEFORE = frozenset(" \t-*+>|0123456789")
_REFERENCE = re.compile(r"^ {0,3}\[[^\]]+\]:", re.MULTILINE)


class Parser(MarkdownIt):
    """Markdown as it is shown. HTML is text: what stands between tags, and the tags, would not be shown otherwise.

    Args:
        references: what links by name stand for, beside those that the text itself explains.
    """

    def __init__(self, references: Mapping[str, Any] | None = None) -> None:
        super().__init__("gfm-like", {"html": False})
        self._references = references or {}

    def parse(self, src: str, env: MutableMapping[str, Any] | None = None) -> list[Token]:
        env = {} if env is None else env
        env.setdefault("references", {}).update(self._references)
        return super().parse(src, env)


def references(text: str) -> dict[str, Any]:
    """What links by name stand for in all of a text."""
    if _REFERENCE.search(text) is None:
        return {}
    env: dict[str, Any] = {}
    _blocks_only().parse(text, env)
    return dict(env["references"])


def _blocks_only() -> Parser:
    parser = Parser()
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser


@dataclass(frozen=True, slots=True)
class Part:
    """Some text; ``begins``: of a new section. ``opener`` stands before it there: the line that opens a code block
    which goes on. ``goes_on``: the section begins inside a block, the section before has its start."""

    text: str
    begins: bool
    opener: str = ""
    goes_on: bool = False


class Sections:
    """Cuts a stream of Markdown so that each section means what it meant in the whole.

    A section has ``enough`` characters and ends between two blocks. Inside a block (between the items of a list, the
    lines of code, the words of a paragraph) it ends only if it would have more than ``most``.

    Args:
        code: in place of ``most`` for code.
        exact: makes sure of the place between two blocks by parsing the section.
    """

    def __init__(self, enough: int, most: int, *, code: int | None = None, exact: bool = False) -> None:
        self._enough = enough
        self._most = most
        self._code = most if code is None else code
        self._exact = exact
        self._section: list[str] = []
        self._size = 0  # of the section
        self._line = ""  # so far
        self._blank = False  # the line before is
        self._listing = False  # the line before is of a list
        self._fence = ""  # the marks that close the code block
        self._opener = ""  # the line that opened it

    def push(self, text: str) -> list[Part]:
        parts: list[Part] = []
        for piece in re.findall(r"[^\n]*\n|[^\n]+", text):
            part = self._part(piece)
            if part.begins:
                self._section, self._size = [], 0
            if parts and not part.begins:
                parts[-1] = replace(parts[-1], text=parts[-1].text + piece)
            else:
                parts.append(part)
            self._take(piece)
        return parts

    def _part(self, piece: str) -> Part:
        if self._begins_block(piece):
            return Part(piece, begins=True)
        if self._size > (self._code if self._fence else self._most) and self._goes_on(piece):
            return Part(piece, begins=True, opener=self._opener, goes_on=True)
        return Part(piece, begins=False)

    def _begins_block(self, piece: str) -> bool:
        """Whether the next block begins with this piece, and the section is long enough."""
        if self._line or self._fence or not self._blank or self._size < self._enough:
            return False
        return piece[0] not in _BELONGS_TO_WHAT_WAS_BEFORE and piece != "\n" and (not self._exact or self._is_between())

    def _is_between(self) -> bool:
        """Whether a line that begins here would be a block by itself."""
        text = "".join(self._section)
        tops = [token for token in _blocks_only().parse(text + "x\n") if token.level == 0 and token.map]
        return tops[-1].type == "paragraph_open" and tops[-1].map == [text.count("\n"), text.count("\n") + 1]

    def _goes_on(self, piece: str) -> bool:
        """Whether the block that this is of may go on in the next section."""
        if self._line:
            return len(self._line) > self._most and (piece[0].isspace() or len(self._line) > 2 * self._most)
        if self._fence:
            return piece[0] not in "`~"
        if self._listing and piece[0] in _MARKS:
            return True
        return (self._blank and piece != "\n") or self._size > 3 * self._most

    def _take(self, piece: str) -> None:
        self._size += len(piece)
        if self._exact:
            self._section.append(piece)
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
