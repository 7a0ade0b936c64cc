"""Where panels are docked: right of the conversation; on a narrow screen above it, or in its place."""

from __future__ import annotations

from collections.abc import Callable

from textual.containers import Container
from textual.widget import Widget


class Side(Container):
    """Holds at most one panel, which is made when it is opened.

    A panel hears of turns through ``app.came`` (a `textual.signal.Signal` of `TurnEvent`), and finds the conversation
    in ``app.conductor.chat``.

    Attributes:
        open: the name of the panel that is there; nothing while there is none.
    """

    def __init__(self) -> None:
        super().__init__(id="side")
        self.display = False
        self.open = ""

    @property
    def panel(self) -> Widget | None:
        """The one that is there."""
        return self.children[0] if self.open else None

    async def toggle(self, name: str, make: Callable[[], Widget]) -> None:
        """Opens the panel of this name in place of another, or closes it."""
        wanted = "" if self.open == name else name
        self.open = ""  # what goes, or is not laid out yet, is not drawn on
        await self.remove_children()
        self.display = bool(wanted)
        if wanted:
            await self.mount(make())
            self.open = wanted
