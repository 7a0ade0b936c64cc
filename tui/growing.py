"""Markdown while it comes. An update costs what its own lines cost, however long the text before it is."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock
from rich.markdown import Markdown as RichMarkdown
from rich.segment import Segment
from rich.syntax import Syntax
from textual.geometry import Region, Size
from textual.reactive import Reactive
from textual.strip import Strip
from textual.widget import Widget

from localspec.tui.sections import Parser, Sections

#: Characters that are drawn at once, and at most within a block.
ENOUGH, MOST = 300, 1200


class Code(CodeBlock):
    """Without lines above and below: a block that is drawn in pieces has none in the middle."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Syntax(str(self.text).rstrip("\n"), self.lexer_name, theme=self.theme, word_wrap=True, padding=(0, 1))


class Drawing(RichMarkdown):
    """A piece of Markdown as a whole, which costs a fraction of a widget for every block and item."""

    elements = {**RichMarkdown.elements, "fence": Code, "code_block": Code}  # noqa: RUF012 (Rich declares it so)

    def __init__(self, text: str) -> None:
        super().__init__("", hyperlinks=False)
        self.parsed = Parser().parse(text)  # Rich's own parser would swallow HTML

    def lines(self, console: Console, options: ConsoleOptions) -> list[Strip]:
        segments = console.render(self, options)
        return [Strip(line) for line in Segment.split_lines(segments)]


@dataclass(slots=True)
class Piece:
    """Text that is drawn by itself; ``apart``: a blank line stands before it."""

    text: str
    apart: bool


class Growing(Widget):
    """What is there is drawn once; only the last piece is drawn anew when something is added to it. The screen is
    laid out only when there are more lines, and only lines that changed are painted."""

    virtual_size: Reactive[Size] = Reactive(Size(0, 0), layout=False)  # as in `Tall`

    ALLOW_SELECT = False
    DEFAULT_CSS = """
    Growing {
        width: 1fr;
        height: auto;
    }
    """

    def __init__(self, text: str = "") -> None:
        super().__init__()
        self._cutter = Sections(ENOUGH, MOST)
        self._pieces: list[Piece] = []
        self._width = 0
        self._lines: list[Strip] = []
        self._settled = 0  # lines of pieces that nothing is added to
        self._drawn = 0  # pieces
        self._take(text)

    def append(self, text: str) -> None:
        self._take(text)
        if self._width:
            self._show()

    def _take(self, text: str) -> None:
        for part in self._cutter.push(text):
            if part.begins or not self._pieces:
                self._pieces.append(Piece(part.opener + part.text, apart=bool(self._pieces) and not part.goes_on))
            else:
                self._pieces[-1].text += part.text

    # -- drawing

    def _show(self) -> None:
        before = self._lines
        first = self._settled
        self._draw()
        after = self._lines
        if len(after) != len(before):
            self.refresh(layout=True)
        while first < len(after) and first < len(before) and after[first] == before[first]:
            first += 1
        if first < len(after):
            self.refresh(Region(0, first, self._width, len(after) - first))

    def _draw(self) -> None:
        """The pieces that are not settled yet."""
        lines = self._lines[: self._settled]
        for piece in self._pieces[self._drawn :]:
            self._settled = len(lines)
            lines += self._of(piece)
        self._drawn = max(len(self._pieces) - 1, 0)
        self._lines = lines

    def _of(self, piece: Piece) -> list[Strip]:
        options = self.app.console_options.update(width=self._width, height=None, highlight=False)
        lines = Drawing(piece.text).lines(self.app.console, options)
        return [Strip([]), *lines] if piece.apart and lines else lines

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        if width and width != self._width:
            self._width = width
            self._lines, self._settled, self._drawn = [], 0, 0
            self._draw()
        return len(self._lines)

    def render_line(self, y: int) -> Strip:
        style = self.rich_style
        line = self._lines[y] if y < len(self._lines) else Strip([])
        return line.apply_style(style).adjust_cell_length(self._width, style)
