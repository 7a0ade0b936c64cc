"""Rows and columns of plain text, broken between words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import wrap


def flow(head: str, parts: Sequence[str], width: int) -> list[str]:
    """Parts with dots between them after a head; what does not fit goes on below the first part."""
    lines = [head]
    for part in parts:
        more = part if lines[-1].isspace() or lines[-1] == head else f" · {part}"
        if len(lines[-1] + more) > width:
            lines.append(" " * len(head))
            more = part
        lines[-1] += more
    return lines


def table(pairs: Iterable[tuple[str, str]], width: int, *, left: int, indent: int = 0) -> list[str]:
    """Two columns; the right one begins after ``left`` characters, a line lower where the left one is longer."""
    lines = []
    for name, text in pairs:
        first, *rest = wrap(text, width - indent - left) or [""]
        head = " " * indent + name
        if len(name) < left:
            lines.append(f"{head:<{indent + left}}{first}".rstrip())
        else:
            lines += [head, " " * (indent + left) + first]
        lines += [" " * (indent + left) + line for line in rest]
    return lines
