"""Thinking and answer on the screen, while they come."""

from __future__ import annotations

from localspec.cli.diagnostics import printable, say
from localspec.cli.output import Output
from localspec.text.thinking import Kind, Piece


class Pieces:
    """Answers to standard output; thinking to standard error, unless standard output is a terminal: there it stands in
    its place, dimmed where there is ``colour``, under a label."""

    def __init__(self, output: Output, *, colour: bool) -> None:
        self._output = output
        self._colour = colour
        self._kind: Kind | None = None
        self._line_open = False  # on standard output

    def show(self, piece: Piece) -> None:
        self._change(piece.kind)
        if piece.kind == "answer":
            self._output.text(piece.text)
        elif self._output.terminal:
            self._output.aside(piece.text, colour=self._colour)
        else:
            say(printable(piece.text, keep="\n\t"), end="")
            return
        self._line_open = not piece.text.endswith("\n")

    def end(self, *, line: bool) -> None:
        """All was shown. ``line``: what comes next on standard output begins a line."""
        self._line_open = self._line_open and line
        self._change(None)

    def _change(self, kind: Kind | None) -> None:
        """Another kind of text begins, on a line of its own."""
        if kind == self._kind:
            return
        if self._kind == "thinking" and not self._output.terminal:
            say("")
        if self._line_open:
            self._output.text("\n")
            self._line_open = False
        self._kind = kind
        if kind == "thinking":
            if self._output.terminal:
                self._output.aside("thinking: ", colour=self._colour)
            else:
                say("thinking: ", end="")
