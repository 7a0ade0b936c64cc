"""Where panels are docked: right of the conversation, on a narrow screen in its place."""

from __future__ import annotations

from collections.abc import Callable

from textual.containers import Container
from textual.widget import Widget

#: Columns below which a panel takes the place of the conversation.
NARROW = 90


class Side(Container):
    """Holds at most one panel, which is made when it is opened.

    A panel hears of turns through ``app.came`` (a `textual.signal.Signal` of `TurnEvent`), and finds the conversation
    in ``app.conductor.chat``.
    """

    def __init__(self) -> None:
        super().__init__(id="side")
        self.display = False
        self.open = ""

    async def toggle(self, name: str, make: Callable[[], Widget]) -> None:
        """Opens the panel of this name in place of another, or closes it."""
        await self.remove_children()
        self.open = "" if self.open == name else name
        if self.open:
            await self.mount(make())
        self.display = bool(self.open)
