r"""A picture of a terminal program: runs it in tmux, types, waits, and draws the screen as SVG.

    python -m scripts.screenshot docs/chat.svg --until '\n ready' --type 'Hello' --until 'tok/s' -- localspec chat

Steps are done in the order given. Needs tmux. The command line is drawn above its output, after a ``$``.
"""

from __future__ import annotations

import argparse
import io
import re
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

from scripts.terminal import Screen

LIMIT = 200_000  # bytes of a picture


class Step(argparse.Action):
    """Collects steps of all kinds in one list, in the order they were given in."""

    def __call__(self, parser: Any, namespace: Any, value: Any, option: str | None = None) -> None:
        namespace.steps = [*namespace.steps, (self.dest, value)]


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
