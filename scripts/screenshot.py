#!/usr/bin/env python3
"""A picture of a terminal program: runs it in tmux, types, waits, and draws the screen as SVG.

    scripts/screenshot.py docs/chat.svg --size 96x30 --until '> $' --type 'Hello' --until 'tok/s' -- localspec chat

Steps are done in the order given. Needs tmux. The command line is drawn above its output, after a ``$``.
"""

from __future__ import annotations

import argparse
import io
import re
import shlex
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

LIMIT = 200_000  # bytes of a picture


class Step(argparse.Action):
    """Collects steps of all kinds in one list, in the order they were given in."""

    def __call__(self, parser: Any, namespace: Any, value: Any, option: str | None = None) -> None:
        namespace.steps = [*namespace.steps, (self.dest, value)]


class Screen:
    """One program in a tmux server of its own, which ends with it."""

    def __init__(self, command: Sequence[str], columns: int, rows: int, shown: str) -> None:
        self._socket = f"screenshot-{uuid.uuid4().hex[:8]}"
        # The shell stays when the program is over, so that its last screen can be taken.
        script = f"printf '$ %s\\n' {shlex.quote(shown)}; {shlex.join(command)}; sleep 1000"
        size = ("-x", str(columns), "-y", str(rows))
        self._tmux("-f", "/dev/null", "new-session", "-d", *size, "sh", "-c", script)

    def __enter__(self) -> Screen:
        return self

    def __exit__(self, *_: object) -> None:
        self._tmux("kill-server", check=False)

    def _tmux(self, *command: str, check: bool = True) -> str:
        done = subprocess.run(
            ["tmux", "-L", self._socket, *command], capture_output=True, text=True, check=False, encoding="utf-8"
        )
        if check and done.returncode:
            raise SystemExit(f"tmux {command[0]}: {done.stderr.strip()}")
        return done.stdout

    def press(self, key: str) -> None:
        """One key, by tmux's name for it: ``Enter``, ``Escape``, ``C-d``."""
        self._tmux("send-keys", key)

    def type(self, text: str) -> None:
        """A line and Enter."""
        self._tmux("send-keys", "-l", text)
        self.press("Enter")

    def text(self) -> str:
        """What the screen shows, without colours and without blanks at the ends of lines."""
        return "\n".join(line.rstrip() for line in self._tmux("capture-pane", "-p").splitlines()).rstrip("\n")

    def coloured(self) -> str:
        return self._tmux("capture-pane", "-e", "-p").rstrip("\n")

    def until(self, pattern: str, seconds: float) -> None:
        """Waits for a screen that ``pattern`` is found in (``.`` and ``$`` as with re.S).

        Raises:
            SystemExit: it does not come in time, or the program ends first; the screen is shown.
        """
        end = time.monotonic() + seconds
        while not re.search(pattern, self.text(), re.DOTALL):
            if self.over or time.monotonic() > end:
                raise SystemExit(f"{pattern!r} does not come:\n{self.text()}")
            time.sleep(0.2)

    @property
    def over(self) -> bool:
        """The program has ended: what runs now is the shell's last command."""
        return self._tmux("display-message", "-p", "#{pane_current_command}").strip() == "sleep"


def draw(screen: str, columns: int, title: str) -> str:
    """An SVG picture of a screen with its ANSI colours; it loads no fonts from elsewhere."""
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for line in screen.splitlines():
        console.print(Text.from_ansi(line), no_wrap=True, overflow="crop", crop=True)
    picture = console.export_svg(title=title, theme=DIMMED_MONOKAI)
    picture = re.sub(r"\s*@font-face \{.*?\}(?=\s)", "", picture, flags=re.DOTALL)
    return picture.replace("Fira Code, monospace", "monospace")


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--size", default="96x30", metavar="COLSxROWS")
    parser.add_argument("--title", default="")
    parser.add_argument("--show", default="", metavar="TEXT", help="command line to draw instead of the real one")
    parser.add_argument("--seconds", type=float, default=180, help="patience of each --until")
    for name, meta in (("type", "LINE"), ("press", "KEY"), ("until", "REGEX"), ("sleep", "SECONDS")):
        parser.add_argument(f"--{name}", action=Step, metavar=meta)
    parser.set_defaults(steps=[])
    parser.add_argument("command", nargs="+", metavar="-- COMMAND")
    return parser.parse_args(argv)


def main() -> None:
    args = arguments()
    columns, rows = map(int, args.size.split("x"))
    with Screen(args.command, columns, rows, args.show or shlex.join(args.command)) as screen:
        for kind, value in args.steps:
            match kind:
                case "type":
                    screen.type(value)
                case "press":
                    screen.press(value)
                case "until":
                    screen.until(value, args.seconds)
                case _:
                    time.sleep(float(value))
        picture = draw(screen.coloured(), columns, args.title)
    if len(picture.encode()) > LIMIT:
        sys.exit(f"the picture has {len(picture.encode())} bytes, more than {LIMIT}")
    args.picture.write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
