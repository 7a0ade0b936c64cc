"""A recorded session of the chat with the demo model: docs/session.md to read, docs/session.cast to play.

    python -m scripts.record

A list of acts is typed into ``localspec chat`` in tmux, each when the screen says that the one before is over. The
transcript has what each act brought to the screen and, where an answer is stopped, how long the prompt took to come
back. The recording is of asciinema's format 2. Takes some minutes and 400 MB. Needs tmux.
"""

from __future__ import annotations

import argparse
import codecs
import json
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from scripts.terminal import Screen

COLUMNS, ROWS = 100, 32
LIMIT = 300_000  # bytes of the recording
PATIENCE = 120.0  # seconds for one act
STOPPED_IN = 1.0  # seconds from ctrl-c to the prompt at most
SHOWN = (8, 24)  # lines of an act at its start and end; what lies between is left out of the transcript
READY = r"\n>$"
LOG = "".join(
    f"2026-03-{day:02} {hour:02}:00 station {day % 7} reports {(day * hour) % 41} mm of rain\n"
    for day in range(1, 11)
    for hour in range(24)
)
LINES = "".join(f"line {n}\n" for n in range(1, 301)) + "How many lines are there?"


@dataclass(frozen=True, slots=True)
class Act:
    """What is typed at the prompt, and what it is for.

    Args:
        typed: ends with Enter unless it is empty.
        pasted: put in at once in place of typing; so long that the prompt only says how long.
        stop: ctrl-c comes when this is on the screen below what was typed.
        first: a command that leads to a prompt with text in it.
        erase: keys for that text, by tmux's names.
        leaves: the program ends; ctrl-d is pressed.
    """

    title: str
    typed: str = ""
    pasted: str = ""
    stop: str = ""
    first: str = ""
    erase: Sequence[str] = ()
    leaves: bool = False


ACTS = (
    Act("The same numbers each time", typed="/set seed 7"),
    Act("A question", typed="Name three rivers in Europe."),
    Act("Another that needs the first", typed="Which of them is the longest? Answer in one sentence."),
    Act("Once more, with the seed moved on", typed="/regen"),
    Act("The question is changed", typed="Which of them flows through Vienna?", first="/edit", erase=("C-a", "C-k")),
    Act("No chance from here on", typed="/set temp 0"),
    Act("A file of some thousand tokens", typed="/read rain.log"),
    Act("ctrl-c while it is read", typed="Which station has most rain?", stop=r"reading the prompt +[1-9]\d? %"),
    Act("The file is taken back", typed="/undo"),
    Act("A new conversation", typed="/clear"),
    Act("ctrl-c in a long answer", typed="List 200 animals, one a line.", stop=r"(?:[^\n]+\n+){12}"),
    Act("Short answers from here on", typed="/set predict 60"),
    Act("300 lines pasted are one message", pasted=LINES),
    Act("Plain decoding", typed="/spec off"),
    Act("A turn without guesses", typed="Write the numbers from 1 to 30, with commas."),
    Act("Guessing where it pays", typed="/spec auto"),
    Act("The same turn", typed="Write them again."),
    Act("How it went", typed="/stats"),
    Act("What there is", typed="/help"),
    Act("ctrl-d", leaves=True),
)


@dataclass(frozen=True, slots=True)
class Played:
    """An act and the lines it brought; ``seconds`` from ctrl-c to the prompt."""

    act: Act
    lines: tuple[str, ...]
    seconds: float | None = None


class Cast:
    """Writes what comes out of a pipe as asciinema's events, each with the time it came at, in a thread."""

    def __init__(self, pipe: Path, out: TextIO, columns: int, rows: int) -> None:
        self._pipe = pipe
        self._out = out
        header = {"version": 2, "width": columns, "height": rows, "title": "localspec chat"}
        out.write(json.dumps(header) + "\n")
        self._thread = threading.Thread(target=self._copy, daemon=True)
        self._thread.start()

    def _copy(self) -> None:
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode  # a read may end within a character
        with self._pipe.open("rb", buffering=0) as source:
            start = time.monotonic()
            while data := source.read(65536):
                self._out.write(event(time.monotonic() - start, decode(data)))

    def close(self) -> None:
        """Waits for the end of the pipe."""
        self._thread.join(timeout=10)


def event(seconds: float, text: str) -> str:
    return json.dumps([round(seconds, 3), "o", text], ensure_ascii=False) + "\n"


def play(screen: Screen, act: Act) -> float | None:
    """One act, from a waiting prompt to the next; seconds from ctrl-c to there if it was stopped.

    Raises:
        SystemExit: it does not go as it should; the screen is shown.
    """
    if act.leaves:
        screen.press("C-d")
        screen.until_over(PATIENCE)
        return None
    if act.first:
        _send(screen, lambda: screen.write(act.first), act.first)
        screen.until(r"\n> [^\n]+$", PATIENCE)
    for key in act.erase:
        screen.press(key)
    if act.pasted:
        _send(screen, lambda: screen.paste(act.pasted), f"[pasted {act.pasted.count(chr(10)) + 1} lines]")
    else:
        _send(screen, lambda: screen.write(act.typed), act.typed)
    if not act.stop:
        screen.until(READY, PATIENCE)
        return None
    screen.until(rf"{re.escape(act.typed)}\n(?:localspec: [^\n]*\n)*{act.stop}", PATIENCE, every=0.05)
    start = time.monotonic()
    screen.press("C-c")
    screen.until(READY, PATIENCE, every=0.02)
    return time.monotonic() - start


def _send(screen: Screen, put: Callable[[], None], last: str) -> None:
    """Enter follows when the text is on the screen: until then the prompt looks as if all were over."""
    put()
    screen.until(rf"{re.escape(last)}$", PATIENCE)
    screen.press("Enter")


def news(before: Sequence[str], after: Sequence[str]) -> tuple[str, ...]:
    """Lines of ``after`` from the first that differs on, without the waiting prompt."""
    same = next(
        (i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after))
    )
    lines = list(after[same:])
    if lines and lines[-1] == ">":
        lines.pop()
    return tuple(lines)


def shortened(lines: Sequence[str]) -> list[str]:
    """At most what `SHOWN` says, and how much is missing."""
    head, tail = SHOWN
    if len(lines) <= head + tail + 1:
        return list(lines)
    return [*lines[:head], f"[... {len(lines) - head - tail} lines ...]", *lines[-tail:]]


def transcript(played: Sequence[Played]) -> str:
    parts = [
        "# A session",
        "<!-- Made by scripts/record.py: do not edit. -->",
        "What a script typed into `localspec chat` with the demo model, and what came of it. A new act begins when\n"
        f"the screen, of {COLUMNS} columns and {ROWS} rows, shows that the one before is over. The same to watch:\n"
        "`asciinema play docs/session.cast`.",
    ]
    for one in played:
        parts.append(f"## {one.act.title}")
        fence = "````" if any("```" in line for line in one.lines) else "```"
        parts.append("\n".join([f"{fence}text", *shortened(one.lines), fence]) if one.lines else "The program ends.")
        if one.seconds is not None:
            parts.append(f"From ctrl-c to the prompt: {one.seconds:.2f} s.")
    return "\n\n".join(parts) + "\n"


def record(acts: Sequence[Act], cast: TextIO, folder: Path) -> list[Played]:
    """Plays the acts in ``folder``.

    Raises:
        SystemExit: one of them does not go as it should.
    """
    pipe = folder / "screen"
    os.mkfifo(pipe)
    (folder / "rain.log").write_text(LOG)
    copy = Cast(pipe, cast, COLUMNS, ROWS)
    # Its own history of messages; settings of this machine stay out.
    home = {name: str(folder) for name in ("XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")}
    command = [
        "env",
        "-C",
        str(folder),
        *(f"{key}={value}" for key, value in home.items()),
        "localspec",
        "chat",
        "--no-tui",
    ]
    played: list[Played] = []
    with Screen(command, COLUMNS, ROWS, "localspec chat", pipe) as screen:
        screen.until(READY, PATIENCE)
        before: list[str] = []
        for act in (Act("Nothing but the name"), *acts):
            seconds = play(screen, act) if act in acts else None
            after = screen.history().split("\n")
            played.append(Played(act, news(before, after), seconds))
            print(f"{act.title}: {len(played[-1].lines)} lines" + ("" if seconds is None else f", {seconds:.2f} s"))
            if seconds is not None and seconds > STOPPED_IN:
                raise SystemExit(f"{act.title}: the prompt came {seconds:.2f} s after ctrl-c, more than {STOPPED_IN} s")
            before = after
    copy.close()
    return [replace(one, lines=tuple(line.rstrip() for line in one.lines)) for one in played]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--docs", type=Path, default=Path(__file__).resolve().parent.parent / "docs")
    docs: Path = parser.parse_args().docs
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # takes the terminal along
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "session.cast"
        with made.open("w", encoding="utf-8") as cast:
            played = record(ACTS, cast, Path(folder))
        recording = made.read_text("utf-8")
    if len(recording.encode()) > LIMIT:
        raise SystemExit(f"the recording has {len(recording.encode())} bytes, more than {LIMIT}")
    (docs / "session.cast").write_text(recording, encoding="utf-8")
    (docs / "session.md").write_text(transcript(played), encoding="utf-8")


if __name__ == "__main__":
    main()
