"""Files that go along with a message."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import UsageError
from localspec.hub.sizes import human
from localspec.text.printable import one_line

#: No vocabulary at hand has longer tokens: a file with more bytes a cell cannot fit.
MOST_BYTES_PER_TOKEN = 256
MOST_FILES = 200
#: Characters of a message where it is only named.
SHORT = 60
_HEAD = re.compile(r"(?P<name>[^\n]+):\n(?P<fence>`{3,})\n")


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file's name as shown, its text, and the tokens it costs in a message."""

    name: str
    text: str
    tokens: int

    @property
    def size(self) -> str:
        """``310 lines, 12 kB``"""
        lines = self.text.count("\n") + (not self.text.endswith("\n"))
        return f"{lines} line{'' if lines == 1 else 's'}, {human(len(self.text.encode('utf-8', 'replace')))}"

    def block(self) -> str:
        """As it stands in the message: fenced, with a fence that the text does not have."""
        longest = max((len(run) for run in re.findall("`+", self.text)), default=0)
        fence = "`" * max(3, longest + 1)
        end = "" if self.text.endswith("\n") or not self.text else "\n"
        return f"{self.name}:\n{fence}\n{self.text}{end}{fence}\n\n"


def with_attachments(attachments: Sequence[Attachment], text: str) -> str:
    return "".join(one.block() for one in attachments) + text


def parted(message: str) -> tuple[list[Attachment], str]:
    """The files at the start of a message as it was sent (their tokens are not known any more), and the rest."""
    files: list[Attachment] = []
    at = 0
    while (head := _HEAD.match(message, at)) is not None:
        end = message.find(f"\n{head['fence']}\n\n", head.end() - 1)
        if end < 0:
            break
        files.append(Attachment(head["name"], message[head.end() : end + 1], 0))
        at = end + len(head["fence"]) + 3
    return files, message[at:]


def own_words(message: str) -> str:
    """What the user wrote below the attached files; all of it where there are none."""
    return parted(message)[1] or message


def in_short(message: str) -> str:
    """A message in a line of at most `SHORT` characters."""
    line = one_line(own_words(message))
    return line if len(line) <= SHORT else f"{line[: SHORT - 1]}…"


def read_file(name: str, n_ctx: int) -> tuple[str, str]:
    """Name as shown and text of a file.

    Raises:
        UsageError: it cannot be read, is no text, or is too large for a context of ``n_ctx`` tokens whatever is in it.
    """
    path = Path(os.path.expanduser(name))
    shown = one_line(str(name))
    try:
        if path.exists() and not path.is_file():
            raise UsageError(f"{shown} is not a file", hint="Use /glob for the files of a folder.")
        size = path.stat().st_size
        if size > n_ctx * MOST_BYTES_PER_TOKEN:
            raise UsageError(
                f"{shown} has {size:,} bytes, which cannot fit in a context of {n_ctx} tokens",
                hint="Attach a part of it, or raise -c.",
            )
        data = path.read_bytes()
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
        if (zero := data.find(0)) >= 0:  # UTF-16 may pass for UTF-8, and no text has one
            raise UsageError(f"{shown} is not UTF-8 text (byte {zero} is 0x00)", hint="Convert it first.")
        return shown, text
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{shown} is not UTF-8 text (byte {error.start} is {error.object[error.start]:#04x})",
            hint="Convert it first.",
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{shown} cannot be read: {reason}", hint="Check the path.") from None


def check_room(files: Sequence[Attachment], free: int, n_ctx: int) -> None:
    """Sees whether files fit into so many free tokens of a context, with something to say about them.

    Raises:
        UsageError: they do not.
    """
    cost = sum(one.tokens for one in files)
    if cost >= free:
        names = files[0].name if len(files) == 1 else f"{len(files)} files"
        raise UsageError(
            f"{names}: {cost} tokens, {max(free, 0)} of {n_ctx} are free",
            hint="Attach less, make room with /undo or /clear, or raise -c.",
        )


def matching(pattern: str) -> list[str]:
    """Files that match, in order of their names; ``**`` goes through folders.

    Raises:
        UsageError: there is none, or far too many.
    """
    found: list[str] = []
    for name in glob.iglob(os.path.expanduser(pattern), recursive=True):
        if Path(name).is_file():
            found.append(name)
        if len(found) > MOST_FILES:
            raise UsageError(
                f"more than {MOST_FILES} files match {one_line(pattern)}", hint="Use a pattern that matches fewer."
            )
    if not found:
        raise UsageError(f"no file matches {one_line(pattern)}", hint="** goes through folders: src/**/*.py.")
    return sorted(found)
