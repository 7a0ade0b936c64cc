"""The connection of one answer, which another thread may cut."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

_OPENED = ("connection.connect_tcp.complete", "connection.start_tls.complete")


class Line:
    """Closing a socket does not wake who waits for it; shutting it down does."""

    def __init__(self) -> None:
        self.is_cut = False
        self._socket: socket.socket | None = None

    def trace(self, name: str, info: Mapping[str, Any]) -> None:
        """Hears from httpx how the request goes. Nothing may be raised here: a connection would be left open."""
        if name in _OPENED:
            self._socket = info["return_value"].get_extra_info("socket")
            if self.is_cut:  # looked at last: a cut that comes later finds the socket
                self._shut()

    def cut(self) -> None:
        """From any thread."""
        self.is_cut = True
        self._shut()

    def _shut(self) -> None:
        if self._socket is not None:
            with suppress(OSError):
                # Not that of TLS, which would take its state from under whoever reads.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
