"""The one module that writes stdout: model text or JSON, nothing else."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from typing import Any

from localspec.cli.diagnostics import dim
from localspec.report import finite
from localspec.text.printable import printable
from localspec.types import Event


def accept_any_text() -> None:
    """Makes stdout UTF-8, or on a terminal a "?" of what it cannot show: no text is a reason to fail."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is None:
        return
    if sys.stdout.isatty():
        reconfigure(errors="replace")
    else:
        reconfigure(encoding="utf-8", errors="replace", newline="\n")


class Output:
    """Standard output, flushed at every write.

    Raises:
        BrokenPipeError: nobody reads it, or it was closed from the start.
        OSError: it cannot be written (a full disk).
    """

    def __init__(self) -> None:
        if sys.stdout is None:
            raise BrokenPipeError
        self.terminal = sys.stdout.isatty()

    def columns(self) -> int:
        """How wide the terminal is now; 0 if nobody knows."""
        try:
            return os.get_terminal_size(sys.stdout.fileno()).columns
        except (AttributeError, OSError, ValueError):
            return 0

    def text(self, text: str) -> None:
        """Model text. On a terminal its control characters are made harmless; a file gets it as it is."""
        self._write(printable(text, keep="\n\t") if self.terminal else text)

    def aside(self, text: str, *, colour: bool) -> None:
        """What a model says beside its answer; for terminals only."""
        self._write(dim(printable(text, keep="\n\t"), on=colour))

    def sequence(self, text: str) -> None:
        """An escape sequence of ours, for terminals only."""
        self._write(text)

    def record(self, record: Any) -> None:
        """One JSON object on one line."""
        self._write(json.dumps(finite(record), ensure_ascii=False, allow_nan=False) + "\n")

    def event(self, event: Event) -> None:
        """One event as a line of JSON: its fields, and its kind as ``event``."""
        self.record({"event": type(event).__name__.lower(), **_jsonable(asdict(event))})

    def _write(self, text: str) -> None:
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except (BrokenPipeError, ValueError) as error:
            raise BrokenPipeError from error


def _jsonable(value: Any) -> Any:
    if isinstance(value, bytes):
        return list(value)
    if isinstance(value, dict):
        return {key: _jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(item) for item in value]
    return value
