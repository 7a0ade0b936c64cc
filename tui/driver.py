"""The terminal, which may send anything and go away at any time."""

from __future__ import annotations

import os
import selectors
from codecs import getincrementaldecoder
from contextlib import suppress
from io import TextIOWrapper
from typing import Any, cast

from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver

_PATIENCE = 0.1  # seconds after which an escape is one, and no longer the start of a key


class TerminalDriver(LinuxDriver):
    """Textual's, but bytes that are no text do not end the program, and neither does a terminal that is gone: a signal
    says so, and there is something to be kept before the end."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._file = cast(TextIOWrapper, _Lasting(cast(TextIOWrapper, self._file)))

    def run_input_thread(self) -> None:
        parser = XTermParser(self._debug)
        decode = getincrementaldecoder("utf-8")("replace").decode
        with selectors.DefaultSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                messages = list(parser.tick())
                if selector.select(_PATIENCE):
                    data = self._read()
                    if not data:
                        return
                    messages += parser.feed(decode(data))
                for message in messages:
                    self.process_message(message)

    def _read(self) -> bytes:
        """What was typed; nothing: the terminal is gone."""
        try:
            return os.read(self.fileno, 65536)
        except OSError:
            return b""


class _Lasting:
    """A stream that takes what is written when nobody reads it any more. A thread that writes would end otherwise, and
    the program wait for it."""

    def __init__(self, stream: TextIOWrapper) -> None:
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
