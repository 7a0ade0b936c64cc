"""A/B: the last question answered with guesses and without, beside each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from localspec.talk.compare import WAYS, Answer, Outcome, Said, Step, Way
from localspec.text.printable import printable

#: Seconds between two updates of the screen while text comes.
FRAME_S = 0.08


class Side(Vertical):
    """One of the two answers."""

    DEFAULT_CSS = """
    Side { border: round $border; padding: 0 1; }
    Side > .speed { height: auto; color: $text-muted; }
    """

    def __init__(self, way: Way) -> None:
        super().__init__(id=way)
        self.border_title = way
        self._text = ""
        self._shown = 0

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(classes="text", markup=False)
        yield Static("waits", classes="speed", markup=False)

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).anchor()

    def say(self, text: str) -> None:
        """More of the answer; it is on the screen after the next `draw`."""
        self._text += printable(text, keep="\n\t")

    def draw(self) -> None:
        if len(self._text) != self._shown:
            self.query_one(".text", Static).update(self._text)
            self._shown = len(self._text)
        # A layout that finds the end by itself leaves the bar where it was painted.
        view = self.query_one(VerticalScroll)
        view.vertical_scrollbar.position = view.scroll_y
        view.vertical_scrollbar.refresh()

    def status(self, text: str) -> None:
        self.query_one(".speed", Static).update(text)


class CompareScreen(ModalScreen[None]):
    """Shows a comparison while it runs; escape stops it, and closes it when it is over.

    Args:
        stop: ends what runs.
    """

    DEFAULT_CSS = """
    CompareScreen { layout: vertical; padding: 1 2; }
    CompareScreen > #sides { layout: vertical; height: 1fr; }
    CompareScreen.-wide > #sides { layout: horizontal; }
    CompareScreen Side { width: 1fr; height: 1fr; }
    CompareScreen > #outcome { height: auto; max-height: 8; padding: 0 1; border: round $border; }
    CompareScreen.-narrow { padding: 0; }
    """
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (80, "-wide")]  # noqa: RUF012 (Textual declares it so)
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "stop", "Stop, close", id="compare.stop")]

    def __init__(self, stop: Callable[[], None]) -> None:
        super().__init__()
        self._stop = stop
        self._told = self._over = False
        self._outcome = Static("The last question is asked twice.", id="outcome", markup=False)

    def compose(self) -> ComposeResult:
        with Container(id="sides"):
            yield from map(Side, WAYS)
        self._outcome.border_subtitle = "escape stops"
        yield self._outcome

    def on_mount(self) -> None:
        self.set_interval(FRAME_S, self._draw)

    def action_stop(self) -> None:
        if self._over:
            self.dismiss(None)
        else:
            self._say("stopping …")
            self._stop()

    def hear(self, step: Step | None) -> None:
        """What came; ``None``: no more comes."""
        match step:
            case Said(way, text):
                side = self._side(way)
                side.say(text)
                side.status("answers …")
            case Answer():
                self._side(step.way).status(step.line)
            case Outcome():
                self.tell("\n".join(step.lines(max(self.size.width - 8, 20))))
            case None:
                self._over = True
                self._outcome.border_subtitle = "escape closes"
                self._draw()
                if not self._told:
                    self._say("stopped")

    def tell(self, text: str) -> None:
        """How it went."""
        self._told = True
        self._say(text)

    def _say(self, text: str) -> None:
        self._outcome.update(printable(text, keep="\n"))

    def _draw(self) -> None:
        for side in self.query(Side):
            side.draw()

    def _side(self, way: Way) -> Side:
        return self.query_one(f"#{way}", Side)
