"""The dashboard of a running server."""

from __future__ import annotations

from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.timer import Timer
from textual.widgets import DataTable, Footer, Sparkline, Static
from textual.worker import get_current_worker

from localspec.errors import NetworkError
from localspec.text.printable import printable
from localspec.tools.top import words
from localspec.tools.top.board import Board, View
from localspec.tools.top.source import Source
from localspec.tui.terminal import TerminalApp

#: The times between two looks that + and - go through, in seconds.
INTERVALS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


class TopApp(TerminalApp):
    """Looks again and again, in a thread: a server that does not answer stops nothing here."""

    CSS = """
    Screen { layout: vertical; }
    #summary, #depths { height: auto; padding: 0 1; }
    #curve { height: 3; margin: 1 1 0 1; }
    #slots { height: auto; max-height: 12; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p", "pause", "Pause", id="top.pause"),
        Binding("plus,equals_sign", "interval(-1)", "More often", key_display="+", id="top.faster"),
        Binding("minus", "interval(1)", "Less often", key_display="-", id="top.slower"),
        Binding("q", "quit", "Quit", id="top.quit"),
    ]
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, source: Source, *, interval: float = 1.0, plain: bool = False) -> None:
        super().__init__()
        self.interval = interval
        self.paused = False
        self._source = source
        self._plain = plain
        self._board = Board(source.url)
        self._looking = False
        self._next: Timer | None = None

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static("looking …", id="summary", markup=False)
            if not self._plain:
                yield Sparkline([], id="curve", summary_function=max)
            yield Static(id="depths", markup=False)
            yield DataTable(id="slots", cursor_type="none")
        yield Footer()

    def on_mount(self) -> None:
        self.query_one("#slots", DataTable).add_columns(*words.SLOT_HEADS)
        self._again()

    def on_resize(self) -> None:
        self._draw(self._board.view)

    # -- looking

    def _again(self) -> None:
        """Looks now; `_looked` sees to the next time."""
        if self._next is not None:
            self._next.stop()
        if not self.paused and not self._looking:
            self._looking = True
            self._look()

    @work(thread=True)
    def _look(self) -> None:
        worker = get_current_worker()
        try:
            reading = self._source.read()
            view = self._board.take(reading)
        except NetworkError as error:
            view = self._board.lost(error.message)
        if not worker.is_cancelled:
            self.call_from_thread(self._looked, view)

    def _looked(self, view: View) -> None:
        self._looking = False
        self._draw(view)
        self._next = self.set_timer(self.interval, self._again)

    def _draw(self, view: View) -> None:
        if not self.query("#summary"):  # the first size comes before anything is there, the last look after it
            return
        how = "paused" if self.paused else f"every {self.interval:g} s"
        width = max(self.size.width - 3, 20)
        lines = [*words.summary(view, width, plain=self._plain), f"looks    {how}"]
        self.query_one("#summary", Static).update(printable("\n".join(lines), keep="\n"))
        self.query_one("#depths", Static).update("\n".join(words.depths(view, plain=self._plain)))
        for curve in self.query(Sparkline):
            curve.data = list(view.curve[-max(width, 1) :])
        table = self.query_one("#slots", DataTable)
        table.clear()
        for slot in view.slots or ():
            table.add_row(*words.slot_row(slot))

    # -- actions

    def action_pause(self) -> None:
        self.paused = not self.paused
        self._draw(self._board.view)
        self._again()

    def action_interval(self, by: int) -> None:
        """To the next of `INTERVALS` in this direction."""
        others = [one for one in INTERVALS if (one > self.interval if by > 0 else one < self.interval)]
        if others:
            self.interval = min(others) if by > 0 else max(others)
        self._draw(self._board.view)
        self._again()
