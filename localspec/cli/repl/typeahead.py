"""What is typed while nobody reads: kept as it was typed, and not shown in the middle of an answer."""

from __future__ import annotations

import os
import re
import signal
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, TextIO

from localspec.cli.repl.keyboard import Keyboard, read_what_is_there
from localspec.text.printable import printable

#: A key that is more than a character: escape sequences of arrows, function keys, a bracketed paste.
_KEYS = re.compile(r"\x1b(\[[0-9;?<]*[ -/]*[@-~]|O.|.|$)", re.DOTALL)
_ERASES = "\x7f\b"


@contextmanager
def keys_are_kept(screen: TextIO | None) -> Iterator[Keyboard]:
    """While the terminal is ours, a ctrl-c throws away nothing that was typed, and leaves no ^C behind; what is typed
    or pasted between prompts is kept, and nothing of it is left to the shell.

    Between prompts the terminal neither echoes keys nor edits lines, so that they reach the next prompt as they were:
    Enter stays Enter, and sends. It marks what is pasted. The prompt and the editor set what they need and put this
    back.

    Args:
        screen: where the prompt will be drawn; ``None``: there is no such prompt, and the terminal goes on to edit
            lines by itself.
    """
    line = _terminal()
    if line is None:
        yield Keyboard(None)
        return
    with keys_wait(line, screen) as (typed, before):
        keyboard = Keyboard(line, typed)
        try:
            with _given_back_while_stopped(line, before, screen):
                yield keyboard
        finally:
            mark_pastes(screen, on=False)  # first: what is pasted from here on is thrown away
            keyboard.close()


@contextmanager
def keys_wait(line: int, screen: TextIO | None) -> Iterator[tuple[bytes, list[Any]]]:
    """The terminal's part of it: what is typed from now on waits until somebody reads it.

    Yields:
        What was typed before, and how the line was set then, which it is in the end.
    """
    before = termios.tcgetattr(line)
    ours = termios.tcgetattr(line)
    ours[3] = ours[3] & ~termios.ECHOCTL | termios.NOFLSH
    if screen is not None:
        ours[0] &= ~(termios.ICRNL | termios.INLCR | termios.IGNCR)
        ours[3] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(line, termios.TCSADRAIN, ours)
    typed = b"" if screen is None else _typed_before(line)  # before there are marks, which belong to what follows them
    mark_pastes(screen, on=True)
    try:
        yield typed, before
    finally:
        mark_pastes(screen, on=False)
        with suppress(termios.error):  # the terminal may be gone
            termios.tcsetattr(line, termios.TCSADRAIN, before)


def _typed_before(line: int) -> bytes:
    """What was typed while the terminal still edited lines, and so made each Enter a new line, as ctrl-j does. The last
    one sends; those inside belong to a text that was put in at once, and without any text there is nothing to send."""
    typed = read_what_is_there(line)
    text = typed.strip(b"\n")
    return text + b"\r" if text and typed.endswith(b"\n") else text


@contextmanager
def _given_back_while_stopped(line: int, before: list[Any], screen: TextIO | None) -> Iterator[None]:
    """ctrl-z leaves the shell a terminal as it was, and takes it up again as it is now when the job goes on."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        with suppress(termios.error):  # the terminal may be gone
            now = termios.tcgetattr(line)
            mark_pastes(screen, on=False)
            termios.tcsetattr(line, termios.TCSADRAIN, before)
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTSTP)  # comes back when the job goes on
            signal.signal(signal.SIGTSTP, stop)
            termios.tcsetattr(line, termios.TCSADRAIN, now)
            mark_pastes(screen, on=True)

    if signal.getsignal(signal.SIGTSTP) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTSTP, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)


def mark_pastes(screen: TextIO | None, *, on: bool) -> None:
    """Asks the terminal for marks around what is pasted, or for none."""
    if screen is not None:
        with suppress(OSError, ValueError):  # it may be gone
            os.write(screen.fileno(), b"\x1b[?2004" + (b"h" if on else b"l"))  # a signal may have come in a write


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


def _terminal() -> int | None:
    return sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None


def draft(typed: str) -> str:
    """What these keys would have written, as one text: Enter a new line, what was rubbed out gone; other keys that
    write nothing are left out."""
    text = ""
    for char in _KEYS.sub("", typed.replace("\r\n", "\n")).replace("\r", "\n"):
        if char in _ERASES:
            text = text[:-1]
        elif printable(char, keep="\n\t") == char:
            text += char
    return text.strip("\n")
