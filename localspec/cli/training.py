"""How far a training is, on stderr: a bar where that is a terminal, else a line for each thing done."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from localspec.cli.diagnostics import has_colour, note
from localspec.cli.transfer import Stderr, moves
from localspec.text.printable import one_line

if TYPE_CHECKING:
    from rich.progress import Progress

    from localspec.train.run import Point


class Telling:
    """A `localspec.train.drive.Told`."""

    def __init__(self) -> None:
        self._bars: Progress | None = None
        self._said = ""
        self.stopped = False

    def __enter__(self) -> Telling:
        if moves():
            self._bars = _bars(has_colour(sys.stderr))
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def stop(self) -> None:
        """It is to end soon."""
        self.stopped = True
        self._note("ending; ctrl-c again ends at once")

    @contextmanager
    def phase(self, what: str, whole: int | None) -> Iterator[Callable[[int, str], None]]:
        """As `Told.phase`."""
        if self._bars is None:
            if what != self._said:  # learning begins again after each measurement
                note(f"{what} …")
            self._said = what
            yield lambda _count, _word: None
            return
        bars = self._bars
        task = bars.add_task(one_line(what), total=whole, word="")
        try:
            yield lambda count, word: bars.update(task, advance=count, word=word)
        finally:
            bars.remove_task(task)

    def point(self, point: Point) -> None:
        """As `Told.point`."""
        found = point.acceptance
        by_position = " ".join(f"{share:.0%}".replace("%", " %") for share in found.by_position)
        self._note(f"{point.tokens} tokens learned from: {found.length:.2f} tokens a step (accepted: {by_position})")

    def _note(self, text: str) -> None:
        if self._bars is None:
            note(text)
        else:
            self._bars.print(f"localspec: {one_line(text)}", markup=False, highlight=False, soft_wrap=True)


def _bars(colour: bool) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[word]}", markup=False),
        TimeElapsedColumn(),
        console=Console(file=Stderr(), no_color=not colour),  # type: ignore[arg-type]
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
