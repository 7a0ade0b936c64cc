"""Thinking and answer on the screen, while they come."""

from __future__ import annotations

from localspec.cli.diagnostics import say
from localspec.cli.output import Output
from localspec.cli.wrap import Wrapper
from localspec.text.printable import printable
from localspec.text.thinking import Kind, Piece


class Pieces:
    """Answers to standard output; thinking to standard error, unless standard output is a terminal: there it stands in
    its place, dimmed where there is ``colour``, under a label.

    Args:
        wraps: a terminal gets lines that are broken between words.
    """

    def __init__(self, output: Output, *, colour: bool, wraps: bool = False) -> None:
        self._output = output
        self._colour = colour
        self._wrapper = Wrapper(output.columns) if wraps and output.terminal else None
        self._kind: Kind | None = None
        self._line_open = False  # on standard output

    def show(self, piece: Piece) -> None:
        self._change(piece.kind)
        self._push(piece.text)
        if piece.kind == "answer" or self._output.terminal:
            self._line_open = not piece.text.endswith("\n")

    def end(self, *, line: bool) -> None:
        """All was shown. ``line``: what comes next on standard output begins a line."""
        self._line_open = self._line_open and line
        self._change(None)

    def _change(self, kind: Kind | None) -> None:
        """Another kind of text begins, on a line of its own."""
        if kind == self._kind:
            return
        if self._wrapper is not None:
            self._write(self._wrapper.end())
        if self._kind == "thinking" and not self._output.terminal:
            say("")
        if self._line_open:
            self._output.text("\n")
            self._line_open = False
        self._kind = kind
        if kind == "thinking":
            self._push("thinking: ")

    def _push(self, text: str) -> None:
        self._write(text if self._wrapper is None else self._wrapper.push(text))

    def _write(self, text: str) -> None:
        if self._kind == "answer":
            self._output.text(text)
        elif self._output.terminal:
            self._output.aside(text, colour=self._colour)
        else:
            say(printable(text, keep="\n\t"), end="")
