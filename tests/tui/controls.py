"""Tiny apps around a panel or a screen of the controls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from textual.app import App
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widget import Widget

from tests.tui.hosts import Host, screen_lines

T = TypeVar("T")


class PanelHost(Host):
    """One widget on the whole screen, and what it says of changes."""

    def __init__(self, widget: Widget) -> None:
        super().__init__(widget)
        self.messages: list[object] = []

    def on_parameters_changed(self, message: object) -> None:
        self.messages.append(message)


class ScreenHost(App[None]):
    """Shows a screen and keeps what it ends with."""

    def __init__(self, screen: Screen[Any]) -> None:
        super().__init__()
        self._first = screen
        self.results: list[Any] = []

    def on_mount(self) -> None:
        self.push_screen(self._first, self.results.append)


def drive(app: App[Any], scenario: Callable[[Pilot[Any]], Awaitable[T]], *, size: tuple[int, int]) -> T:
    """What a scenario gives on a screen of so many columns and lines."""

    async def main() -> T:
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            return await scenario(pilot)

    return asyncio.run(main())


async def until(pilot: Pilot[Any], done: Callable[[], bool]) -> None:
    """Lets threads and the app work until something is so; a test's own time limit ends it otherwise."""
    while not done():
        await pilot.pause(0.01)


def shown(pilot: Pilot[Any]) -> str:
    """What stands on the screen."""
    return "\n".join(screen_lines(pilot))
