"""What every full screen owes the terminal: nothing but drawings reaches it, and it is given back as it was."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from threading import Event

from rich.segment import Segment
from textual.app import App
from textual.color import Color
from textual.filter import LineFilter

from localspec.errors import ExitCode
from localspec.tui.driver import Ahead, TerminalDriver

#: What ends a program from outside, and its exit code then.
ENDING = {signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGINT: 130}
#: Control characters take no cell, halves of surrogates one.
_STEERING: dict[int, str | None] = {
    **dict.fromkeys((*range(0x20), *range(0x7F, 0xA0))),
    **dict.fromkeys(range(0xD800, 0xE000), "�"),
}


class Harmless(LineFilter):
    """The last gate before the terminal, whichever widget draws. Texts are made harmless where they are shown; what is
    edited stays as it is."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [segment if segment.text.isprintable() else _without_steering(segment) for segment in segments]


def _without_steering(segment: Segment) -> Segment:
    return Segment(segment.text.translate(_STEERING), segment.style, segment.control)


class TerminalApp(App[None]):
    """A screen that any end from outside ends as a key would.

    Attributes:
        code: what the program ends with; ``None``: it has not ended as it should.
        ahead: what was typed before it was there.
        takes_keys: set when the first frame is drawn; keys wait for it.
    """

    code: int | None = None

    def __init__(self, ahead: Ahead | None = None) -> None:
        super().__init__(driver_class=TerminalDriver)
        self.ahead = ahead
        self.takes_keys = Event()
        self._gate = Harmless()

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [*super().get_line_filters(), self._gate]

    def on_mount(self) -> None:
        self.call_after_refresh(self.takes_keys.set)
        if not self.is_headless:
            loop = asyncio.get_running_loop()
            for number, code in ENDING.items():
                if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup leaves it
                    loop.add_signal_handler(number, self.go, code)

    async def action_quit(self) -> None:
        self.go(ExitCode.OK)

    def go(self, code: int) -> None:
        """Leaves; the first reason counts."""
        if self.code is None:
            self.code = code
        self.exit(return_code=self.code)
