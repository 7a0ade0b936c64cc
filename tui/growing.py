"""Markdown while it comes. An update costs what its own lines cost, however long the text before it is."""

from __future__ import annotations

from dataclasses import dataclass

from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock
from rich.markdown import Markdown as RichMarkdown
from rich.segment import Segment
from rich.style import Style
from rich.syntax import Syntax, SyntaxTheme
from textual.geometry import Region, Size
from textual.reactive import Reactive
from textual.strip import Strip
from textual.widget import Widget

from localspec.tui.sections import Parser, Sections

#: Characters that are drawn at once, and at most within a block; code can be cut at any line.
ENOUGH, MOST = 300, 1200
COLOURS = "monokai"


class Code(CodeBlock):
    """Without lines above and below: a block that is drawn in pieces has none in the middle."""

    colours: SyntaxTheme | str = COLOURS

    @classmethod
    def create(cls, markdown: RichMarkdown, token: Token) -> Code:
        made = cls(token.info.partition(" ")[0] or "text", COLOURS)
        if isinstance(markdown, Drawing):
            made.colours = markdown.colours
        return made

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Syntax(str(self.text).rstrip("\n"), self.lexer_name, theme=self.colours, word_wrap=True, padding=(0, 1))


class Drawing(RichMarkdown):
    """A piece of Markdown as a whole, which costs a fraction of a widget for every block and item.

    Args:
        colours: of code.
    """

    elements = {**RichMarkdown.elements, "fence": Code, "code_block": Code}  # noqa: RUF012 (Rich declares it so)

    def __init__(self, text: str, colours: SyntaxTheme) -> None:
        super().__init__("", hyperlinks=False)
        self.colours = colours
        self.parsed = Parser().parse(text)  # Rich's own parser would swallow HTML

    def lines(self, console: Console, options: ConsoleOptions, style: Style) -> list[Strip]:
        """Each as wide as the options say."""
        lines = Segment.split_lines(console.render(self, options))
        return [Strip(line).apply_style(style).adjust_cell_length(options.max_width, style) for line in lines]


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
        self._cutter = Sections(ENOUGH, MOST, code=ENOUGH)
        self._colours = Syntax.get_theme(COLOURS)
        self._pieces: list[Piece] = []
        self._width = 0
        self._lines: list[Strip] = []  # as they are painted
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
        before, first = self._lines, self._settled
        self._draw()
        after = self._lines
        if len(after) != len(before):
            self.refresh(layout=True)
        while first < min(len(before), len(after)) and after[first] == before[first]:
            after[first] = before[first]  # which has been rendered
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
        style = self.rich_style
        lines = Drawing(piece.text, self._colours).lines(self.app.console, options, style)
        return [Strip.blank(self._width, style), *lines] if piece.apart and lines else lines

    def _draw_anew(self) -> None:
        self._lines, self._settled, self._drawn = [], 0, 0
        self._draw()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        if width and width != self._width:
            self._width = width
            self._draw_anew()
        return len(self._lines)

    def notify_style_update(self) -> None:
        super().notify_style_update()
        if self._width:
            self._draw_anew()

    def render_lines(self, crop: Region) -> list[Strip]:
        """They are ready as they are; Textual would style all that is seen anew whenever there is a line more."""
        background = self.background_colors[1]
        blank = Strip.blank(self._width, self.rich_style)
        lines = [self._lines[y] if y < len(self._lines) else blank for y in crop.line_range]
        for colours in self.get_line_filters():
            lines = [line.apply_filter(colours, background) for line in lines]
        return [line.crop(crop.x, crop.right) for line in lines] if crop.column_span != (0, self._width) else lines
