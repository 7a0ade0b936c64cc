"""Text of models, files and names, made harmless for a terminal."""

from __future__ import annotations


def one_line(text: str) -> str:
    return printable(" ".join(text.split()))


def printable(text: str, *, keep: str = "") -> str:
    """Text without the control characters that would steer a terminal, and without bytes that are no text (halves of
    surrogates, as in names of files); ``keep`` names those that stay."""
    return "".join(char if char in keep or _is_plain(char) else "�" for char in text)


def _is_plain(char: str) -> bool:
    code = ord(char)
    return 0x20 <= code < 0x7F or (code >= 0xA0 and not 0xD800 <= code <= 0xDFFF)
