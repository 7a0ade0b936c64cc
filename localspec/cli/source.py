"""Where a prompt comes from: -p, -f and standard input."""

from __future__ import annotations

import os
import select
import sys
from pathlib import Path

from localspec.cli.diagnostics import note
from localspec.errors import UsageError
from localspec.options import Values


def read_prompt(values: Values, *, more_follows: bool = False) -> str | None:
    """The text of ``-p``, then that of ``-f``, a blank line between them. Standard input is read where one of them is
    ``-``, or when neither is given and it is not a terminal. The last line end of a file or of standard input is not
    part of the prompt. ``None``: nothing was given.

    Args:
        more_follows: standard input is read later, so that it is no wonder if there is something in it.

    Raises:
        UsageError: a file that cannot be read, or text that is not UTF-8.
    """
    prompt, file = values["prompt"], values["file"]
    if prompt is None and file is None:
        return None if _is_terminal() else _standard_input()
    parts = []
    if prompt is not None:
        parts.append(_standard_input() if prompt == "-" else prompt)
    if file is not None:
        parts.append(_standard_input() if file == "-" else _file(file))
    if "-" not in (prompt, file) and not more_follows:
        _mention_unread_input()
    return "\n\n".join(parts)


def _is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def _standard_input() -> str:
    if sys.stdin is None:
        return ""
    return _decode(sys.stdin.buffer.read(), "standard input")


def _file(name: str) -> str:
    try:
        return _decode(Path(name).read_bytes(), name)
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{name} cannot be read: {reason}", hint="Check the path given to -f.") from None


def _decode(raw: bytes, name: str) -> str:
    try:
        return raw.decode("utf-8-sig").removesuffix("\n").removesuffix("\r")  # the line's end is the file's
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{name} is not UTF-8 text (byte {error.start} is {raw[error.start]:#04x})",
            hint="Convert it first.",
        ) from None


def _mention_unread_input() -> None:
    """Piped text that an argument hides is worth a line; waiting for it is not."""
    if sys.stdin is None or os.name == "nt" or _is_terminal():
        return
    try:
        ready = bool(select.select([sys.stdin], [], [], 0)[0])
        waiting = ready and bool(getattr(sys.stdin.buffer, "peek", lambda n: b"")(1))
    except (OSError, ValueError):
        return
    if waiting:
        note("standard input is not read because a prompt is given; add -f - to append it")
