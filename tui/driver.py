"""The terminal, which may send anything and go away at any time."""

from __future__ import annotations

from contextlib import suppress
from typing import IO, Any, cast

from textual.drivers.linux_driver import LinuxDriver


class TerminalDriver(LinuxDriver):
    """Textual's, but bytes that are no text do not end the program, and neither does a terminal that is gone: a signal
    says so, and there is something to be kept before the end."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._file = cast(IO[str], _Lasting(self._file))

    def _run_input_thread(self) -> None:
        while not self.exit_event.is_set():
            try:
                self.run_input_thread()
            except UnicodeDecodeError:
                continue  # those bytes are lost, what comes after them is read
            except OSError:
                return


class _Lasting:
    """A stream that takes what is written when nobody reads it any more. A thread that writes would end otherwise, and
    the program wait for it."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            self._stream.write(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()
