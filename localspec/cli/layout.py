"""Lines as wide as the terminal, broken between words; where there is no terminal, 80 columns."""

from __future__ import annotations

import os
import sys
from textwrap import wrap

COLUMNS = 80
NARROWEST = 40


def at_terminal() -> bool:
    """Whether `say` writes to a terminal."""
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # it was closed
        return False


def is_dumb() -> bool:
    """Whether the terminal says of itself that it knows no more than lines."""
    return os.environ.get("TERM", "") in ("", "dumb")


def can_draw() -> bool:
    """Whether there is a terminal for a full screen, on all three streams."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return not is_dumb() and all(stream is not None and stream.isatty() for stream in streams)


def columns(*, least: int = NARROWEST) -> int:
    """How wide the terminal is that `say` writes to, now; ``least`` where it is narrower."""
    try:
        found = os.get_terminal_size(sys.stderr.fileno()).columns
    except (AttributeError, OSError, ValueError):
        found = COLUMNS
    return max(found or COLUMNS, least)


def fitted(text: str) -> str:
    """The same text with long lines broken between words, where it is read at a terminal."""
    if not at_terminal():
        return text
    width = columns()
    return "\n".join(part for line in text.split("\n") for part in _broken(line, width))


def _broken(line: str, width: int) -> list[str]:
    if len(line) <= width:
        return [line]
    indent = " " * (len(line) - len(line.lstrip(" ")) + 2)
    # A path, a flag or a web address is never broken by us: what is copied from the terminal is whole.
    return wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
