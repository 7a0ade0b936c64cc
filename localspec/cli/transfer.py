"""Downloads on stderr: a bar where that is a terminal, else a line at the start and one at the end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.cli.diagnostics import has_colour, note, say
from localspec.cli.layout import is_dumb
from localspec.hub import HubRef, resolve
from localspec.hub.names import Split
from localspec.hub.sizes import human
from localspec.options import Values
from localspec.text.printable import one_line

if TYPE_CHECKING:
    from rich.progress import Progress


def fetch(ref: HubRef, values: Values) -> Path:
    """The file of a model on a hub, downloaded if need be, with what there is to say on stderr.

    Raises:
        LocalspecError: as `localspec.hub.resolve`.
    """
    transfer = Transfer(
        bars=moves() and not values.get("simple_io", False), colour=has_colour(sys.stderr, values.get("color", "auto"))
    )
    try:
        return resolve(ref, progress=transfer, offline=values["offline"], token=values["hf_token"])
    except KeyboardInterrupt:
        if transfer.unfinished:
            note("the download is stopped; what arrived is kept, and the same command goes on from there")
        raise


def moves() -> bool:
    """Whether stderr is a terminal whose cursor can go back."""
    return sys.stderr is not None and sys.stderr.isatty() and not is_dumb()


class Transfer:
    """A `localspec.hub.Watcher` that shows one file after the other."""

    def __init__(self, *, bars: bool, colour: bool) -> None:
        self._bars = bars
        self._colour = colour
        self._shown: Progress | None = None
        self._name, self._done = "", 0
        self.unfinished = False

    def begin(self, name: str, size: int | None, done: int) -> None:
        self._name, self._done = name.rpartition("/")[2], done
        self.unfinished = True
        if self._bars:
            self._shown = _bar(self._colour)
            split = Split.of(self._name)
            part = "" if split is None else f"{split.index}/{split.count} "  # long names lose their ends
            self._shown.add_task(part + one_line(self._name), total=size, completed=done)
            self._shown.start()
        else:
            part = f", {human(done)} are here already" if done else ""
            note(f"downloading {self._name} ({human(size) if size else 'size unknown'}{part})")

    def advance(self, count: int) -> None:
        self._done += count
        if self._shown is not None:
            self._shown.advance(self._shown.task_ids[0], count)

    def check(self) -> None:
        if self._shown is not None:
            self._shown.update(self._shown.task_ids[0], description=f"checking {one_line(self._name)}")

    def end(self, whole: bool) -> None:
        if self._shown is not None:
            self._shown.stop()
            self._shown = None
        if whole:
            self.unfinished = False
            note(f"downloaded {self._name} ({human(self._done)})")

    def note(self, text: str) -> None:
        if self._shown is None:
            note(text)
        else:
            self._shown.print(f"localspec: {one_line(text)}", markup=False, highlight=False, soft_wrap=True)


class Stderr:
    """The file that Rich writes to: what `say` says."""

    @property
    def encoding(self) -> str:
        return getattr(sys.stderr, "encoding", None) or "ascii"

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        say(text, end="")
        return len(text)

    def flush(self) -> None:
        pass


def _bar(colour: bool) -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.table import Column

    console = Console(file=Stderr(), no_color=not colour)  # type: ignore[arg-type]
    names = Column(no_wrap=True, overflow="ellipsis", ratio=1)
    numbers = Column(no_wrap=True, justify="right")
    return Progress(
        TextColumn("{task.description}", markup=False, table_column=names),
        BarColumn(bar_width=20),
        DownloadColumn(table_column=numbers),
        TransferSpeedColumn(table_column=numbers),
        TimeRemainingColumn(compact=True, table_column=numbers),
        console=console,
        transient=True,
        expand=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
