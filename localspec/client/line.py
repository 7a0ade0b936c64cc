"""The connection of one answer, which another thread may cut."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

#: Seconds of silence after which it is asked whether the other machine is still there, between two such questions, and
#: how many of them may go unheard. An answer may be silent for long; one that has no power never says that it is gone.
_KEEPALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6))
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
            self._keep_alive()
            if self.is_cut:  # looked at last: a cut that comes later finds the socket
                self._shut()

    def _keep_alive(self) -> None:
        if self._socket is None:
            return
        with suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _KEEPALIVE:
                if (option := getattr(socket, name, None)) is not None:
                    self._socket.setsockopt(socket.IPPROTO_TCP, option, value)

    def cut(self) -> None:
        """From any thread."""
        self.is_cut = True
        self._shut()

    def _shut(self) -> None:
        if self._socket is not None:
            with suppress(OSError):
                # Not that of TLS, which would take its state from under whoever reads.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
