"""The statistics panel: what speculation does, while it does it."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.talk.trace import AnswerTrace
from localspec.tui.lines import LinesView
from localspec.tui.stats_lines import stats_lines


class StatsPanel(LinesView):
    """A column of 36 to 50 cells. `show` may be called many times a second: only lines that changed are painted."""

    BORDER_TITLE = "Speculation"
    DEFAULT_CSS = """
    StatsPanel {
        width: 44;
    }
    """

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._trace = AnswerTrace()
        self._standings: list[tuple[str, str]] = []

    def show(self, trace: AnswerTrace, standings: Sequence[tuple[str, str]]) -> None:
        """An answer as far as it has come, and how each drafter stands, in words.

        Args:
            trace: may be the same one again, grown; it is looked at again when the panel is resized.
        """
        if trace is not self._trace:
            self.clear()
        self._trace, self._standings = trace, list(standings)
        self._draw()

    def on_resize(self) -> None:
        self.clear()
        self._draw()

    def _draw(self) -> None:
        if self.columns:
            self.set_lines(stats_lines(self._trace, self._standings, self.columns, self.visible_rows))
