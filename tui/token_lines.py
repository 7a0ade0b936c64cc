"""The tokens of an answer laid out in lines, each marked by who guessed it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from rich.cells import cell_len

from localspec.text.utf8 import Utf8Decoder
from localspec.tui.tree_view import REJECTED
from localspec.tui.visible import cut, spelled
from localspec.types import TokenInfo

#: Stands for a token whose bytes become a character only with those of the next ones.
PART = "⋯"
_DIGITS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True, slots=True)
class Shown:
    """One token as it stands in the text: blanks it begins with, the mark of its drafter or of a refusal, the rest of
    it in one line, and the cells of all three."""

    blank: str
    mark: str
    text: str
    cells: int
    source: str
    depth: int


class TokenLines:
    """Grows token by token. A line ends after a token with a line break, and before one that no longer fits; no token
    stands in two lines, and one that is longer than a line is cut.

    Args:
        width: cells of a line.
        depths: marks say the depth of each guess, not only where a drafter's guesses begin.
    """

    def __init__(self, width: int, *, depths: bool = False) -> None:
        self.tokens: list[Shown] = []
        self.width = width
        self._depths = depths
        self._starts = [0]  # first token of each line
        self._used = 0  # cells of the last line
        self._decoder = Utf8Decoder()
        self._ended = False

    def add(self, tokens: Iterable[TokenInfo], marks: Mapping[str, str], refused: Collection[int] = ()) -> None:
        """Appends tokens; ``marks`` are signs by drafter, ``refused`` places where guesses were not drawn."""
        for token in tokens:
            sign = REJECTED if len(self.tokens) in refused else self._mark(token, marks)
            shown = self._shown(token, sign)
            if self.tokens and (self._ended or self._used + shown.cells > self.width):
                self._starts.append(len(self.tokens))
                self._used = 0
            self.tokens.append(shown)
            self._used += shown.cells
            self._ended = b"\n" in token.piece

    def _shown(self, token: TokenInfo, mark: str) -> Shown:
        decoded = self._decoder.decode(token.piece)
        text = spelled(decoded, keep=" ") or (PART if token.piece else "∅")
        text = cut(text, max(self.width - cell_len(mark), 1))
        rest = text.lstrip(" ") or text  # so that the mark stands at the word and not at the one before
        blank = text[: len(text) - len(rest)]
        return Shown(blank, mark, rest, cell_len(mark) + cell_len(text), token.source, token.depth)

    def _mark(self, token: TokenInfo, marks: Mapping[str, str]) -> str:
        if not token.source:
            return ""
        before = self.tokens[-1].source if self.tokens else ""
        begins = token.depth == 1 or token.source != before
        sign = marks.get(token.source, "") if begins else ""
        return sign + (str(token.depth).translate(_DIGITS) if self._depths else "")

    # -- lines

    def __len__(self) -> int:
        """Lines; an empty answer has one."""
        return len(self._starts)

    def line(self, at: int) -> range:
        """Places of the tokens of a line; none where there is no such line."""
        if not 0 <= at < len(self._starts):
            return range(0)
        stop = self._starts[at + 1] if at + 1 < len(self._starts) else len(self.tokens)
        return range(self._starts[at], stop)

    def line_of(self, token: int) -> int:
        return bisect_right(self._starts, token) - 1

    def column_of(self, token: int) -> int:
        """Cells before a token in its line."""
        return sum(self.tokens[i].cells for i in range(self._starts[self.line_of(token)], token))

    def token_at(self, line: int, column: int) -> int | None:
        """The token at a place, the last of a line for a place behind it; ``None`` where there is no such line."""
        places = self.line(line)
        for place in places:
            column -= self.tokens[place].cells
            if column < 0:
                return place
        return places[-1] if places else None
