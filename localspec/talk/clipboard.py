"""Ways into the clipboard: a tool of this desktop, or the terminal, which may be on another machine.

Whether a terminal takes what it is sent (OSC 52) nobody knows, so that such a text is put into a file, too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

#: Bytes; with more, terminals begin to drop the sequence.
MOST_SENT = 70_000
#: Seconds that a tool gets.
PATIENCE = 3.0
#: Set where the keyboard is on another machine than this program.
_AWAY = ("SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY")


@dataclass(frozen=True, slots=True)
class Tool:
    """A program that puts its standard input into the clipboard.

    Attributes:
        needs: a variable that is set where it works; nothing: it works wherever it is.
    """

    command: tuple[str, ...]
    needs: str = ""
    encoding: str = "utf-8"

    @property
    def name(self) -> str:
        return self.command[0]


TOOLS = (
    Tool(("wl-copy",), "WAYLAND_DISPLAY"),
    Tool(("xclip", "-selection", "clipboard", "-in"), "DISPLAY"),
    Tool(("xsel", "--clipboard", "--input"), "DISPLAY"),
    Tool(("pbcopy",)),
    Tool(("clip.exe",), encoding="utf-16-le"),  # of the Windows around a WSL
)


@dataclass(frozen=True, slots=True)
class Way:
    """How a text goes into the clipboard. ``sequence`` is still to be written to the terminal; ``said`` is a line for
    the user."""

    said: str
    sequence: str = ""


def tool(environ: Mapping[str, str]) -> Tool | None:
    """The one that reaches the clipboard of whoever sits here, if there is one."""
    if any(environ.get(name) for name in _AWAY):
        return None
    path = environ.get("PATH", os.defpath)
    return next(
        (one for one in TOOLS if (not one.needs or environ.get(one.needs)) and shutil.which(one.name, path=path)), None
    )


def put(text: str, what: str = "", *, file: Path | None = None, environ: Mapping[str, str] = os.environ) -> Way:
    """Puts a text into the clipboard; takes as long as a tool takes.

    Args:
        what: the text in a few words.
        file: where it is put, too; by default `copied_file`.
    """
    what = what or f"{len(text)} characters"
    found, failed = tool(environ), ""
    if found is not None:
        fault = _handed(found, text, environ)
        if fault is None:
            return Way(f"copied {what} with {found.name}")
        failed = f"{found.name} did not work ({fault}); "
    kept = _kept(text, copied_file() if file is None else file)
    if len(text.encode("utf-8", "replace")) > MOST_SENT:
        return Way(f"{failed}{what}: too much for the clipboard of a terminal{f'; it is in {kept}' if kept else ''}")
    also = f"; also in {kept}" if kept else ""
    return Way(f"{failed}copied {what} by OSC 52, if this terminal takes it{also}", sequence(text))


def sequence(text: str) -> str:
    """What asks a terminal to take a text."""
    return f"\x1b]52;c;{b64encode(text.encode('utf-8', 'replace')).decode()}\x07"


def _handed(one: Tool, text: str, environ: Mapping[str, str]) -> str | None:
    """Why the tool did not take it; ``None``: it did. What it leaves running holds the text, and no end of ours."""
    path = shutil.which(one.name, path=environ.get("PATH", os.defpath)) or one.name
    command: Sequence[str] = (path, *one.command[1:])
    try:
        done = subprocess.run(
            command,
            input=text.encode(one.encoding, "replace"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            timeout=PATIENCE,
            env=dict(environ),
        )
    except subprocess.TimeoutExpired:
        return f"no answer in {PATIENCE:.0f} s"
    except OSError as error:
        return error.strerror or str(error)
    return None if done.returncode == 0 else f"exit code {done.returncode}"


def _kept(text: str, file: Path) -> Path | None:
    """The file, if it could be written; only its owner may read it."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "wb") as out:
            out.write(text.encode("utf-8", "replace"))
    except OSError:
        return None
    return file


def copied_file() -> Path:
    """Where the last text is that was copied through a terminal."""
    from platformdirs import user_state_path

    return user_state_path("localspec", appauthor=False) / "copied.txt"
