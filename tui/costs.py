"""What the files cost that a message mentions, before it is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from textual import work
from textual.widgets import Static
from textual.worker import Worker

from localspec.tui.turns import plain

#: Lines for a text, in any thread: one that is no longer waited for goes on to its end.
Weigh = Callable[[str], Sequence[str]]
#: Seconds without a key after which the files are read.
PAUSE = 0.2
#: Lines that are shown.
MOST_LINES = 5


class Costs(Static):
    """A line for each file. They are read and counted in another thread."""

    def __init__(self, weigh: Weigh) -> None:
        super().__init__(id="costs", markup=False)
        self.display = False
        self._weigh = weigh
        self._worker: Worker[None] | None = None

    def weigh(self, text: str) -> None:
        """Another text stands in the editor."""
        if self._worker is not None:
            self._worker.cancel()
        self._worker = self._soon(text) if "@" in text else None
        if self._worker is None:
            self._show(())

    @work(exit_on_error=False)  # a line that is missing is no reason to end
    async def _soon(self, text: str) -> None:
        await asyncio.sleep(PAUSE)
        self._show(await asyncio.to_thread(self._weigh, text))

    def _show(self, lines: Sequence[str]) -> None:
        if not (lines or self.display):
            return
        more = [f"… and {len(lines) - MOST_LINES + 1} more"] if len(lines) > MOST_LINES else []
        self.update(plain("\n".join([*lines[: MOST_LINES - len(more)], *more])))
        self.display = bool(lines)
