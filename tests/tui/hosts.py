"""Tiny apps around one widget."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from textual.app import App, ComposeResult
from textual.pilot import Pilot
from textual.widget import Widget

T = TypeVar("T")


class Host(App[None]):
    """Shows one widget on the whole screen."""

    CSS = "Screen > Widget { width: 1fr; height: 1fr; }"

    def __init__(self, widget: Widget) -> None:
        super().__init__()
        self._widget = widget

    def compose(self) -> ComposeResult:
        yield self._widget


def run(widget: Widget, scenario: Callable[[Pilot[None]], Awaitable[T]], *, size: tuple[int, int] = (50, 40)) -> T:
    """What a scenario gives, with the widget focused on a screen of ``size`` columns and lines."""

    async def main() -> T:
        async with Host(widget).run_test(size=size) as pilot:
            await pilot.pause()
            return await scenario(pilot)

    return asyncio.run(main())


def screen_lines(pilot: Pilot[None]) -> list[str]:
    """What stands on the screen, without trailing blanks."""
    return [strip.text.rstrip() for strip in pilot.app.screen._compositor.render_strips()]
