"""The lines of an input, one after the other: a file may be larger than memory."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from localspec.errors import UsageError

#: Bytes of a line at most: no prompt is longer, and a file without line ends must not fill the memory.
LONGEST = 64 * 2**20
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Line:
    """``number`` counts from 1, blank lines too; ``data`` has no line end; ``None``: the line is too long."""

    number: int
    data: bytes | None


def read_lines(source: BinaryIO, *, longest: int = LONGEST) -> Iterator[Line]:
    """Every line that is not blank. A byte-order mark at the start is not part of the first one."""
    number = 0
    while data := source.readline(longest + 1):
        number += 1
        if len(data) > longest and not data.endswith(b"\n"):
            _skip(source, longest)
            yield Line(number, None)
            continue
        if number == 1:
            data = data.removeprefix(_BOM)
        if data := data.strip(b" \t\r\n"):
            yield Line(number, data)


def _skip(source: BinaryIO, size: int) -> None:
    while (rest := source.readline(size)) and not rest.endswith(b"\n"):
        pass


def count_lines(source: BinaryIO) -> int | None:
    """How many lines `read_lines` will give; ``None``: it is no file that can be read twice."""
    if not stat.S_ISREG(os.fstat(source.fileno()).st_mode):
        return None
    start = source.tell()
    total = sum(1 for _ in read_lines(source))
    source.seek(start)
    return total


def open_input(name: str) -> BinaryIO:
    """Raises `UsageError` if there is no such file, or it cannot be read."""
    try:
        source = open(name, "rb")  # noqa: SIM115  (it is the caller's)
        source.peek(1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{name} cannot be read: {reason}", hint="Check its path.") from None
    return source
