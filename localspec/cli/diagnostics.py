"""The one module that writes stderr, and the one that turns errors into exit codes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from localspec.errors import ExitCode, LocalspecError

PROGRAM = "localspec"


class Ending(Exception):
    """The command is over, with this exit code; everything was said."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def say(text: str) -> None:
    """One line for the user, on stderr. A closed stderr is no reason to fail."""
    try:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass


def note(text: str) -> None:
    say(f"{PROGRAM}: {text}")


def fail(message: str, hint: str = "") -> None:
    """One line: what went wrong, why, and what to do."""
    say(f"{PROGRAM}: error: {one_line(message)}" + (f". {one_line(hint)}" if hint else ""))


def one_line(text: str) -> str:
    return " ".join(printable(text).split())


def printable(text: str, *, keep: str = "") -> str:
    """Text without the control characters that would steer a terminal; ``keep`` names those that stay."""
    return "".join(char if char in keep or _is_plain(char) else "�" for char in text)


def _is_plain(char: str) -> bool:
    code = ord(char)
    return code >= 0xA0 or 0x20 <= code < 0x7F


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
        raise Ending(ExitCode.INTERRUPTED) from None
    except BrokenPipeError:
        raise Ending(ExitCode.OK) from None
    except MemoryError:
        fail("the machine is out of memory", "Use a smaller model, or a smaller -c.")
        raise Ending(ExitCode.MEMORY) from None
