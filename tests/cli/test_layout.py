"""Lines that fit."""

from __future__ import annotations

import io
import os
import pty
import sys
import termios

import pytest

from localspec.cli import layout
from localspec.cli.diagnostics import fail, note
from localspec.cli.layout import columns, fitted
from localspec.cli.session import Progress
from localspec.text.layout import flow, table


def test_parts_flow_below_the_first() -> None:
    assert flow("keys ", ["aaa", "bbb", "ccc"], 16) == ["keys aaa · bbb", "     ccc"]
    assert flow("keys ", ["a" * 30], 16) == ["keys ", "     " + "a" * 30]


def test_a_table_breaks_between_words() -> None:
    pairs = [("a", "one two three"), ("a long name", "four"), ("b", "")]
    assert table(pairs, 16, left=5, indent=2) == [
        "  a    one two",
        "       three",
        "  a long name",
        "       four",
        "  b",
    ]


@pytest.mark.parametrize(("there", "told"), [(61, 61), (5, 40), (0, 80)])
def test_columns_of_a_terminal(monkeypatch: pytest.MonkeyPatch, there: int, told: int) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb"), os.fdopen(theirs, "w") as stream:
        termios.tcsetwinsize(stream.fileno(), (24, there))
        monkeypatch.setattr(sys, "stderr", stream)
        assert columns() == told


def test_progress_fits_in_one_line_of_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as screen, os.fdopen(theirs, "w") as stream:
        termios.tcsetwinsize(stream.fileno(), (24, 14))
        monkeypatch.setattr(sys, "stderr", stream)
        Progress().show("loading a model of a long name", 0.4)
        assert screen.read(100) == b"loading  40 %\r"


def test_columns_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in (io.StringIO(), None):
        monkeypatch.setattr(sys, "stderr", stream)
        assert columns() == 80


def test_long_lines_break_between_words_at_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = "/a/" + "b" * 60
    text = f"it says that {path} cannot be read and so on\n  indented words\nshort"
    assert fitted(text) == text
    monkeypatch.setattr(layout, "at_terminal", lambda: True)
    monkeypatch.setattr(layout, "columns", lambda: 40)
    lines = fitted(text).split("\n")
    assert lines == ["it says that", f"  {path}", "  cannot be read and so on", "  indented words", "short"]
    note("word " * 20)
    fail("what went wrong " * 3, "what to do " * 3)
    said = capsys.readouterr().err.splitlines()
    assert max(map(len, said)) <= 40
    assert len(said) > 4
