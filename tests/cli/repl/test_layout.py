"""Lines that fit."""

from __future__ import annotations

import io
import os
import pty
import sys
import termios

import pytest

from localspec.cli.repl.layout import columns, flow, table


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


def test_columns_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in (io.StringIO(), None):
        monkeypatch.setattr(sys, "stderr", stream)
        assert columns() == 80
