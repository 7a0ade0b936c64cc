"""Where a reader is in the conversation: an edge that is seen, and how far down it lies."""

from __future__ import annotations

from dataclasses import dataclass

from textual.geometry import Region
from textual.widget import Widget

from localspec.tui.turns import Answer, Chapter, Turn


@dataclass(frozen=True, slots=True)
class Place:
    """An edge of a part. What the reader sees is so far from it as the view is.

    Attributes:
        lower: it is the edge below.
        row: of all that scrolls: it is the same however far it is scrolled.
    """

    part: Widget
    lower: bool
    row: int

    def moved(self, scrolled: Widget) -> int:
        """Rows that it lies lower than it did; 0 if the part is not there any more."""
        region = within(self.part, scrolled)
        return (region.bottom if self.lower else region.y) - self.row if region else 0


def place_of(scrolled: Widget, *, grows: Widget | None) -> Place | None:
    """The first edge in view. A part that covers the view has none: its upper one is taken then.

    Args:
        grows: parts of it keep their upper edge, since they grow at the lower one.
    """
    top = round(scrolled.scroll_y)
    part = _first(scrolled, top)
    while isinstance(part, Turn | Answer | Chapter):
        inner = _first(part, top - within(part, scrolled).y)
        if inner is None:
            break
        part = inner
    if part is None:
        return None
    region = within(part, scrolled)
    hangs = region.y < top and region.bottom <= top + scrolled.size.height
    lower = hangs and grows not in part.ancestors_with_self
    return Place(part, lower, region.bottom if lower else region.y)


def _first(around: Widget, row: int) -> Widget | None:
    """The first child that ends below a row."""
    return next((one for one in around.children if one.virtual_region and one.virtual_region.bottom > row), None)


def within(part: Widget, scrolled: Widget) -> Region:
    """Where it is of all that scrolls, as the last layout has it, be it painted yet or not; empty if it is not
    shown."""
    region = part.virtual_region
    if not region or not part.is_attached:
        return Region()
    for one in part.ancestors:
        if one is scrolled:
            break
        assert isinstance(one, Widget)
        region = region.translate(one.virtual_region.offset)
    return region
