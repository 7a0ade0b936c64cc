"""What is typed while nobody reads: kept as it was typed, and not shown in the middle of an answer."""

from __future__ import annotations

import os
import re
import select
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager

#: A key that is more than a character: escape sequences of arrows, function keys, a bracketed paste.
_KEYS = re.compile(r"\x1b(\[[0-9;?<]*[ -/]*[@-~]|O.|.|$)", re.DOTALL)
_ERASES = "\x7f\b"


@contextmanager
def keys_are_kept(*, by_line: bool) -> Iterator[None]:
    """While the terminal is ours, a ctrl-c throws away nothing that was typed, and leaves no ^C behind.

    Between prompts the terminal neither echoes keys nor edits lines, so that they reach the next prompt as they were:
    Enter stays Enter, and sends. The prompt and the editor set what they need and put this back. ``by_line``: there is
    no such prompt; the terminal goes on to edit lines by itself.
    """
    line = _terminal()
    if line is None:
        yield
        return
    before = termios.tcgetattr(line)
    ours = termios.tcgetattr(line)
    ours[3] = ours[3] & ~termios.ECHOCTL | termios.NOFLSH
    if not by_line:
        ours[0] &= ~(termios.ICRNL | termios.INLCR | termios.IGNCR)
        ours[3] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(line, termios.TCSADRAIN, ours)
    try:
        yield
    finally:
        termios.tcsetattr(line, termios.TCSADRAIN, before)


@contextmanager
def controls_are_shown() -> Iterator[None]:
    """While the terminal edits a line by itself: control keys are echoed as ^C, for as they are they would steer it."""
    line = _terminal()
    if line is None:
        yield
        return
    before = termios.tcgetattr(line)
    shown = termios.tcgetattr(line)
    shown[3] |= termios.ECHOCTL
    termios.tcsetattr(line, termios.TCSADRAIN, shown)
    try:
        yield
    finally:
        termios.tcsetattr(line, termios.TCSADRAIN, before)


def waiting() -> bytes:
    """What was typed and not read, taken away; of a terminal that edits lines, the whole lines."""
    line = _terminal()
    typed = b""
    while line is not None and select.select([line], [], [], 0)[0]:
        more = os.read(line, 65536)
        if not more:
            break
        typed += more
    return typed


def forget() -> None:
    """What was typed and not read is given up, half a line too."""
    line = _terminal()
    if line is not None:
        termios.tcflush(line, termios.TCIFLUSH)


def _terminal() -> int | None:
    return sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None


def draft(typed: str) -> str:
    """What these keys would have written, as one text: Enter a new line, what was rubbed out gone; other keys that
    write nothing are left out."""
    text = ""
    for char in _KEYS.sub("", typed.replace("\r\n", "\n")).replace("\r", "\n"):
        if char in _ERASES:
            text = text[:-1]
        elif char in "\n\t" or char.isprintable():
            text += char
    return text.strip("\n")
