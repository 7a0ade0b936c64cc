"""Bytes to text, piece by piece."""

from __future__ import annotations

import codecs


class Utf8Decoder:
    """Decodes UTF-8 that arrives in pieces cut anywhere.

    A character comes out once its last byte is there. Bytes that can no longer become a character come out as
    U+FFFD, one for each broken sequence, exactly as if all bytes were decoded at once.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def decode(self, data: bytes) -> str:
        """The characters that ``data`` completes."""
        return self._decoder.decode(data)

    @property
    def pending(self) -> int:
        """Bytes at the end that may still become a character: 0 to 3."""
        return len(self._decoder.getstate()[0])
