"""The one module that writes stderr, and the one that turns errors into exit codes."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from localspec.cli.layout import at_terminal, fitted, is_dumb
from localspec.errors import ExitCode, LocalspecError
from localspec.text.printable import one_line

PROGRAM = "localspec"
#: Signs of our own lines, for a stderr that has no such characters.
_PLAIN_SIGNS = str.maketrans({"·": "|", "α": "alpha", "×": "x", "�": "?", "…": "..."})


class Ending(Exception):
    """The command is over, with this exit code; everything was said."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def say(text: str, *, end: str = "\n") -> None:
    """One line for the user, on stderr. A closed stderr is no reason to fail."""
    with suppress(AttributeError, OSError, ValueError):  # there is none if it was closed from the start
        sys.stderr.write(_encodable(f"{text}{end}", sys.stderr.encoding))
        sys.stderr.flush()


def _encodable(text: str, encoding: str | None) -> str:
    try:
        text.encode(encoding or "utf-8")
    except UnicodeEncodeError:
        return text.translate(_PLAIN_SIGNS)
    return text


def tell(text: str) -> None:
    """Lines for the user, at a terminal broken between words."""
    say(fitted(text))


def note(text: str) -> None:
    tell(f"{PROGRAM}: {one_line(text)}")


def fail(message: str, hint: str = "") -> None:
    """One line: what went wrong, why, and what to do."""
    tell(f"{PROGRAM}: error: {one_line(message)}" + (f". {one_line(hint)}" if hint else ""))


def dim(text: str, *, on: bool) -> str:
    """Text that steps back, where the terminal has colours."""
    return f"\x1b[2m{text}\x1b[22m" if on and text else text


def has_colour(stream: TextIO | None, wish: str = "auto") -> bool:
    """Whether escape sequences may be written: ``wish`` is --color, ``auto`` asks the stream and the environment."""
    if stream is None or wish == "off":
        return False
    capable = not is_dumb() and not os.environ.get("NO_COLOR")
    return wish == "on" or (capable and stream.isatty())


@contextmanager
def errors_end_the_command(*, debug: bool = False) -> Iterator[None]:
    """Says in one line what went wrong and ends with the documented exit code."""
    try:
        yield
    except LocalspecError as error:
        if debug:
            raise
        fail(error.message, error.hint)
        raise Ending(error.exit_code) from None
    except KeyboardInterrupt:
        if at_terminal():  # where the echo of ctrl-c may be off
            note("stopped")
        raise Ending(ExitCode.INTERRUPTED) from None
    except BrokenPipeError:
        discard_stdout()
        raise Ending(ExitCode.OK) from None
    except OSError as error:
        if debug:
            raise
        discard_stdout()
        fail(str(error))
        raise Ending(ExitCode.RUNTIME) from None
    except MemoryError:
        fail("the machine is out of memory", "Use a smaller model, or a smaller -c.")
        raise Ending(ExitCode.MEMORY) from None


def discard_stdout() -> None:
    """Output that cannot be written: the interpreter flushes once more at exit; let it find something that takes it."""
    try:
        _discard(sys.stdout)
    except (AttributeError, OSError, ValueError):
        sys.stdout = None


def flush_or_discard() -> None:
    """What is still to be said is dropped if the terminal has gone away: that must not change the exit code. A full
    disk is another matter, and seen at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, ValueError):  # there is none, or it is closed
            pass
        except OSError as error:
            if error.errno == errno.EIO:
                _discard(stream)


def _discard(stream: TextIO) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
