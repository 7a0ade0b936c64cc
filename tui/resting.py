"""What is far from the screen keeps its height and nothing else: every widget that is laid out costs time at every
frame, wherever it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from textual.containers import Vertical
from textual.geometry import Region, Size
from textual.reactive import Reactive
from textual.widget import Widget

#: Heights of the view that lie between it and what rests.
MARGIN = 1


class Tall(Vertical):
    """A container as high as its children. When it has grown that is what a layout found out: Textual would lay out
    all of the screen once more for it."""

    virtual_size: Reactive[Size] = Reactive(Size(0, 0), layout=False)
    BLANK = True  # its children cover it, or what is below them shows nothing


class Resting(Tall):
    """A container whose children may be left out of the layout while nobody sees them."""

    rests = False

    def rest(self) -> None:
        if not self.rests and self.is_attached and self.outer_size.height:
            self.rests = True
            self.styles.height = self.outer_size.height
            for child in self.children:
                child.display = False

    def wake(self) -> None:
        if self.rests:
            self.rests = False
            self.styles.height = "auto"
            for child in self.children:
                child.display = True

    def approached(self) -> None:
        """Somebody is near it, perhaps for long."""


def settle(parts: Iterable[tuple[Resting, Region]], view: Region) -> bool:
    """Lets those far from ``view`` rest, and wakes those near it; returns whether there were any: what is in them has
    its place only after the next layout.

    Args:
        parts: with where each lies; the region is empty while it has no place.
    """
    near = view.grow((MARGIN * view.height, 0, MARGIN * view.height, 0))
    woken = False
    for part, region in parts:
        if not region:
            continue
        if region.y < near.bottom and region.bottom > near.y:
            woken = woken or part.rests
            part.wake()
            part.approached()
        else:
            part.rest()
    return woken


def around(widget: Widget) -> Iterator[Resting]:
    """The containers that a widget is in, the outermost first."""
    return (one for one in reversed(list(widget.ancestors)) if isinstance(one, Resting))
