"""Tiny apps around a panel or a screen of the controls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from textual.app import App, ComposeResult
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widget import Widget

T = TypeVar("T")


class PanelHost(App[None]):
    """One widget on the whole screen."""

    def __init__(self, widget: Widget) -> None:
        super().__init__()
        self._widget = widget
        self.messages: list[object] = []

    def compose(self) -> ComposeResult:
        yield self._widget

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
    strips = pilot.app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)
