"""What is typed while nobody reads: kept as it was typed, and not shown in the middle of an answer."""

from __future__ import annotations

import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def keys_are_kept() -> Iterator[None]:
    """Between prompts the terminal neither echoes keys nor edits lines, so that they reach the next prompt as they
    were: Enter stays Enter, and sends. A ctrl-c throws nothing away. The prompt and the editor set what they need and
    put this back."""
    if sys.stdin is None or not sys.stdin.isatty():
        yield
        return
    line = sys.stdin.fileno()
    before = termios.tcgetattr(line)
    ours = termios.tcgetattr(line)
    ours[0] &= ~(termios.ICRNL | termios.INLCR | termios.IGNCR)
    ours[3] = ours[3] & ~(termios.ECHO | termios.ICANON) | termios.NOFLSH
    termios.tcsetattr(line, termios.TCSADRAIN, ours)
    try:
        yield
    finally:
        termios.tcsetattr(line, termios.TCSADRAIN, before)
