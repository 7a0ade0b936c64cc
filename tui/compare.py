"""A/B: the last question answered with guesses and without, beside each other."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static
from textual.worker import get_current_worker

from localspec.errors import LocalspecError
from localspec.talk.compare import WAYS, Answer, Comparison, Outcome, Said, Step, Way
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

    def status(self, text: str) -> None:
        self.query_one(".speed", Static).update(text)


class CompareScreen(ModalScreen[None]):
    """Shows a comparison while it runs; escape stops it, and closes it when it is over."""

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

    def __init__(self, comparison: Comparison) -> None:
        super().__init__()
        self._comparison = comparison
        self._over = False

    def compose(self) -> ComposeResult:
        with Container(id="sides"):
            yield from map(Side, WAYS)
        yield Static("The last question is asked twice; escape stops.", id="outcome", markup=False)

    def on_mount(self) -> None:
        self.set_interval(FRAME_S, self._draw)
        self._run()

    def action_stop(self) -> None:
        if self._over:
            self.dismiss(None)
        else:
            self._tell("stopping …")
            self._comparison.stop()

    def on_unmount(self) -> None:
        self._comparison.stop()

    @work(thread=True, exclusive=True)
    def _run(self) -> None:
        worker = get_current_worker()

        def there(call: Callable[..., None], *arguments: object) -> None:
            if not worker.is_cancelled:
                self.app.call_from_thread(call, *arguments)

        last: Step | None = None
        try:
            with closing(self._comparison.run()) as steps:
                for last in steps:
                    if worker.is_cancelled:
                        return
                    there(self._take, last)
        except LocalspecError as error:
            there(self._end, f"{error.message}. {error.hint}")
            return
        there(self._end, None if isinstance(last, Outcome) else "stopped")

    def _take(self, step: Step) -> None:
        match step:
            case Said(way, text):
                side = self._side(way)
                side.say(text)
                side.status("answers …")
            case Answer():
                self._side(step.way).status(step.line)
            case Outcome():
                self._tell("\n".join(step.lines(max(self.size.width - 8, 20))))

    def _end(self, said: str | None) -> None:
        self._over = True
        self._draw()
        if said is not None:
            self._tell(said)

    def _tell(self, text: str) -> None:
        self.query_one("#outcome", Static).update(printable(text, keep="\n"))

    def _draw(self) -> None:
        for side in self.query(Side):
            side.draw()

    def _side(self, way: Way) -> Side:
        return self.query_one(f"#{way}", Side)
