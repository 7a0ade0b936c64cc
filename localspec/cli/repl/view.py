"""An answer on the screen, while it comes."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from localspec.cli.diagnostics import dim, fail, has_colour, note, say
from localspec.cli.layout import at_terminal, columns
from localspec.cli.output import Output
from localspec.cli.pieces import Pieces
from localspec.cli.session import Progress
from localspec.options import Values
from localspec.report import status_parts
from localspec.talk.turn import Asked, LeftOut, TurnEvent
from localspec.text.layout import flow
from localspec.text.thinking import Piece
from localspec.types import Failed, Finished, Notice, Prefill, Tokens


class View:
    """Answers as `Pieces` has them; everything else to standard error."""

    def __init__(self, output: Output, values: Values, *, plain: bool) -> None:
        self._timings = values["show_timings"]
        wish = "off" if plain else values["color"]
        self._pieces = Pieces(output, colour=has_colour(sys.stdout, wish), wraps=not plain)
        self._colour_err = has_colour(sys.stderr, wish)
        self._progress = Progress(shows=not plain)
        self._answering = False
        self._held: list[str] = []  # notices that wait for the end of the answer's text

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """While an answer comes: it may take a while until there is anything of it to see."""
        self._progress.show("reading the prompt …")
        try:
            yield
        finally:
            self._progress.end()

    def show(self, event: TurnEvent) -> None:
        """One event but the last."""
        if isinstance(event, Asked | Tokens):
            return
        if not isinstance(event, Prefill) or event.done >= event.total - 1:
            self._progress.end()
        if isinstance(event, Piece):
            self._answering = True
            self._pieces.show(event)
        elif isinstance(event, Prefill) and event.done < event.total - 1:
            self._progress.show("reading the prompt", event.done / (event.total - 1))
        elif isinstance(event, LeftOut):
            note(event.text)
        elif isinstance(event, Notice) and self._answering:
            self._held.append(event.text)
        elif isinstance(event, Notice):
            note(event.text)

    def finish(self, last: Finished | Failed | None, *, limit: int, guesses: bool, alone: Sequence[str] = ()) -> None:
        """The end of an answer; ``None``: it broke off. ``alone``: drafters that are not asked."""
        self._progress.end()
        self._pieces.end(line=True)
        self._answering = False
        while self._held:
            note(self._held.pop(0))
        if isinstance(last, Finished) and last.reason == "cancelled" and not last.n:
            note("stopped before the answer began; the question was left out: /regen asks it again")
        elif isinstance(last, Finished) and self._timings:
            parts = status_parts(last, limit=limit, guesses=guesses, alone=alone)
            lines = flow("", parts, columns()) if at_terminal() else [" · ".join(parts)]
            say(dim("\n".join(lines), on=self._colour_err))
        elif isinstance(last, Failed):
            fail(last.message, last.hint)
