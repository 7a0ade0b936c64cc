"""A scrolling column whose rows are made when they are looked at."""

from __future__ import annotations

from collections.abc import Sequence

from textual.cache import LRUCache
from textual.content import Content
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.visual import Visual

_RENDERED = 512  # rows


class RowsView(ScrollView, can_focus=True):
    """Rows of styled text, each cut where the column ends; only those on the screen are rendered."""

    ALLOW_SELECT = False
    DEFAULT_CSS = """
    RowsView {
        overflow-x: hidden;
        overflow-y: auto;
        scrollbar-gutter: stable;
        scrollbar-size-vertical: 1;
        text-wrap: nowrap;
        text-overflow: clip;
    }
    """

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        # Scrolling paints all rows, though none has changed.
        self._rendered: LRUCache[int, Strip] = LRUCache(_RENDERED)

    @property
    def columns(self) -> int:
        """Cells that a row may take; 0 before the first layout and while the view is hidden."""
        return self.scrollable_content_region.width

    @property
    def visible_rows(self) -> int:
        """Rows that can be seen at once."""
        return self.scrollable_content_region.height

    def row(self, at: int) -> Content:
        """The text of a row; empty where there is none."""
        raise NotImplementedError

    def set_row_count(self, count: int) -> None:
        """A change of it lays out the screen."""
        self.virtual_size = Size(self.columns, count)

    def refresh_lines(self, y_start: int, line_count: int = 1) -> None:
        """Rows that changed."""
        for at in range(y_start, y_start + line_count):
            self._rendered.discard(at)
        super().refresh_lines(y_start, line_count)

    def refresh_all(self) -> None:
        """Any row may have changed."""
        self._rendered.clear()
        self.refresh()

    def notify_style_update(self) -> None:
        self._rendered.clear()
        super().notify_style_update()

    def render_line(self, y: int) -> Strip:
        at, width = y + self.scroll_offset.y, self.columns
        strip = self._rendered.get(at)
        if strip is None or strip.cell_length != width:
            strip = self._rendered[at] = self._strip(self.row(at), width)
        return strip

    def _strip(self, content: Content, width: int) -> Strip:
        if not content or not width:
            return Strip.blank(width, self.rich_style)
        strips = Visual.to_strips(self, content, width, 1, self.visual_style, apply_selection=False)
        return strips[0].crop_extend(0, width, self.rich_style)


class LinesView(RowsView):
    """Ready-made lines, of which only those that changed are painted again. Their number never shrinks before `clear`,
    for a change of it is dear."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._lines: list[Content] = []

    @property
    def lines(self) -> Sequence[Content]:
        return self._lines

    def row(self, at: int) -> Content:
        return self._lines[at] if at < len(self._lines) else Content.empty()

    def clear(self) -> None:
        self._lines = []
        self.set_row_count(0)
        self.refresh_all()

    def set_lines(self, lines: Sequence[Content]) -> None:
        old = self._lines
        self._lines = [*lines, *[Content.empty()] * (len(old) - len(lines))]
        for at, line in enumerate(self._lines):
            if at >= len(old) or not line.is_same(old[at]):
                self.refresh_lines(at)
        self.set_row_count(len(self._lines))
