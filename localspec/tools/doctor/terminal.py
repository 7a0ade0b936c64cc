"""Can the chat draw what it would like to?"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from contextlib import suppress

from localspec.tools.doctor.facts import Terminal
from localspec.tools.doctor.findings import Finding, Level

_NARROW = 60


def check(terminal: Terminal) -> Iterator[Finding]:
    """Findings of the group ``terminal``."""
    yield _streams(terminal)
    if terminal.stdout:
        yield _term(terminal)
        yield _colour(terminal)
        yield _width(terminal.columns)
    yield _encoding(terminal.encoding)


def _streams(terminal: Terminal) -> Finding:
    if terminal.stdin and terminal.stdout:
        return Finding("terminal.streams", Level.OK, "standard input and output are a terminal")
    ends = {"standard input": terminal.stdin, "standard output": terminal.stdout}
    missing = " nor ".join(name for name, is_there in ends.items() if not is_there)
    what = f"no terminal at {missing}: there localspec chat takes one message and writes plain lines"
    return Finding("terminal.streams", Level.NOTE, what, "run it in a terminal")


def _term(terminal: Terminal) -> Finding:
    if terminal.term in ("", "dumb"):
        shown = f"TERM is {terminal.term}" if terminal.term else "TERM is not set"
        what = f"{shown}: no line editing, no colours"
        return Finding("terminal.type", Level.NOTE, what, "export TERM=xterm-256color, or localspec chat --simple-io")
    return Finding("terminal.type", Level.OK, f"TERM is {terminal.term}")


def _colour(terminal: Terminal) -> Finding:
    if terminal.colour:
        return Finding("terminal.colour", Level.OK, "colours are used")
    why = "NO_COLOR is set" if terminal.no_colour else "the terminal has none"
    return Finding("terminal.colour", Level.NOTE, f"no colours: {why}", "localspec chat --color on")


def _width(columns: int | None) -> Finding:
    if columns is not None and columns < _NARROW:
        what = f"the terminal is {columns} columns wide: lines break early"
        return Finding("terminal.width", Level.NOTE, what, f"make it {_NARROW} columns or wider")
    return Finding("terminal.width", Level.OK, f"{columns} columns")


def _encoding(encoding: str) -> Finding:
    with suppress(LookupError):
        if codecs.lookup(encoding).name == "utf-8":
            return Finding("terminal.encoding", Level.OK, "output is UTF-8")
    what = f"output is {encoding or 'of no known encoding'}, not UTF-8: what it cannot write becomes a question mark"
    return Finding("terminal.encoding", Level.WARNING, what, "export LANG=C.UTF-8")
