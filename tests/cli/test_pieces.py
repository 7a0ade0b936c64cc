"""Thinking and answer on a terminal: in their places, broken between words where that is asked for."""

from __future__ import annotations

import os
import pty
import sys
import termios

import pytest

from localspec.cli.output import Output
from localspec.cli.pieces import Pieces
from localspec.text.thinking import Piece

COLUMNS = 20


@pytest.mark.parametrize(
    ("wraps", "shown"),
    [
        (True, ["thinking: one two", "three four five", "six seven eight nine", "ten eleven"]),
        (False, ["thinking: one two three four five", "six seven eight nine ten eleven"]),
    ],
)
def test_lines_of_a_terminal(monkeypatch: pytest.MonkeyPatch, wraps: bool, shown: list[str]) -> None:
    """The last word of each part is there, though more of it might have come."""
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as screen, os.fdopen(theirs, "w") as stream:
        termios.tcsetwinsize(stream.fileno(), (24, COLUMNS))
        monkeypatch.setattr(sys, "stdout", stream)
        pieces = Pieces(Output(), colour=False, wraps=wraps)
        for word in ("one ", "two ", "three ", "four five"):
            pieces.show(Piece("thinking", word))
        for word in ("six", " seven", " eight", " nine", " ten", " eleven"):
            pieces.show(Piece("answer", word))
        pieces.end(line=True)
        seen = b""
        while not seen.endswith(b"eleven\r\n"):
            seen += screen.read(1000)
        assert seen.decode().splitlines() == shown


def test_a_file_gets_the_answer_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    pieces = Pieces(Output(), colour=False, wraps=True)
    pieces.show(Piece("thinking", "hm " * 40))
    pieces.show(Piece("answer", "word " * 40))
    pieces.end(line=True)
    assert capsys.readouterr() == ("word " * 40 + "\n", "thinking: " + "hm " * 40 + "\n")
