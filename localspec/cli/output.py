"""The one module that writes stdout: model text or JSON, nothing else."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from typing import Any

from localspec.cli.diagnostics import printable
from localspec.report import finite
from localspec.types import Event


class Output:
    """Standard output as UTF-8 (or what a terminal can show), flushed at every write.

    A closed pipe raises `BrokenPipeError` once; after that nothing is written any more, not even at interpreter exit.
    """

    def __init__(self) -> None:
        self.terminal = sys.stdout.isatty()
        reconfigure = getattr(sys.stdout, "reconfigure", None)
        if reconfigure is not None:
            if self.terminal:
                reconfigure(errors="replace")
            else:
                reconfigure(encoding="utf-8", errors="replace", newline="\n")

    def text(self, text: str) -> None:
        """Model text. On a terminal its control characters are made harmless; a file gets it as it is."""
        self._write(printable(text, keep="\n\t") if self.terminal else text)

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
            self._give_up()
            raise BrokenPipeError from error

    def _give_up(self) -> None:
        # The interpreter flushes stdout once more at exit; let it find something that takes it.
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except (OSError, ValueError):
            sys.stdout = None


def _jsonable(value: Any) -> Any:
    if isinstance(value, bytes):
        return list(value)
    if isinstance(value, dict):
        return {key: _jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(item) for item in value]
    return value
