"""Stop strings in a stream of bytes: what matches, and what may not be shown yet.

The search runs on bytes, not characters. UTF-8 makes that the same thing: the first byte of a character never
occurs inside another one, so a stop string can only match where it would match in the decoded text. Token
borders, on the other hand, are borders of bytes.
"""

from __future__ import annotations

from collections.abc import Sequence


class StopFinder:
    """Finds the first stop string in bytes that arrive in pieces.

    ``held`` is the longest end of all bytes so far that a stop string begins with. A match still to come
    starts in there, so it is the whole search window: work per piece depends on the piece and ``held``, not
    on the answer.

    Args:
        stops: non-empty strings. Lone surrogates are allowed and match nothing in well-formed text.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [(stop, stop.encode("utf-8", "surrogatepass")) for stop in stops]
        self._needles = tuple(needle for _, needle in self._stops)
        if not all(self._needles):
            raise ValueError("a stop string is empty")
        self.held = b""

    def push(self, piece: bytes) -> tuple[bytes, str | None]:
        """Adds ``piece``; returns the bytes that are now known to stay and the stop string found, if any.

        Among the stops that ``piece`` completes, the one that starts earliest wins, then the longest. On a
        match the bytes returned end where it starts; the matched bytes and what follows are gone.
        """
        if not self._needles:
            return piece, None
        window = self.held + piece
        found = [(start, -len(needle), stop) for stop, needle in self._stops if (start := window.find(needle)) >= 0]
        if found:
            start, _, stop = min(found)
            self.held = b""
            return window[:start], stop
        start = self._hold_from(window)
        self.held = window[start:]
        return window[:start], None

    def flush(self) -> bytes:
        """No more bytes: what was held back stays after all."""
        held, self.held = self.held, b""
        return held

    def _hold_from(self, window: bytes) -> int:
        for start in range(len(window)):
            tail = window[start:]
            if any(needle.startswith(tail) for needle in self._needles):
                return start
        return len(window)
