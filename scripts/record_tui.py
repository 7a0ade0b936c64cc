"""A recorded session of the full screen: docs/tui-session.md to read, docs/tui-session-*.cast to play.

    python -m scripts.record_tui

A list of acts is played in ``localspec chat`` in tmux, once on a screen of 120 columns and 40 rows and once on
one of 80 and 24: SmolLM2 in F16 answers, the demo model (the same in Q4_1) guesses. An act is over when the screen
shows what it waits for; nothing waits for a time. The recordings are of asciinema's format 2. Takes some minutes and
1 GB. Needs tmux.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from localspec.models.demo import demo_model
from scripts.dequantize import requantize
from scripts.record import Cast
from scripts.terminal import Screen

SIZES = ((120, 40), (80, 24))
LIMIT = 2 << 20  # bytes of a recording
PATIENCE = 180.0  # seconds for what an act waits for
PICTURES = 5  # a second at most: more make a recording large, and show nothing more
EVERY = 0.05  # seconds between two looks at the screen
TARGET = "SmolLM2-135M-Instruct-F16.gguf"
#: Guesses always as much as it may, so that there is something to see; by default only what pays is guessed.
OPTIONS = ("-md", "demo", "--spec", "fixed", "--spec-tree-nodes", "8", "--spec-tree-width", "2", "-n", "96", "-s", "7")
COMMAND = " ".join(("localspec chat -m", TARGET, *OPTIONS))
ANSWERS, RESTS = r"\n (answering|thinking) · ", r"\n ready · "
ANSWERED = (ANSWERS, RESTS)


@dataclass(frozen=True, slots=True)
class Act:
    """What is done to the screen, and what it shows then.

    Args:
        title: of its part of the page; without one it only leads to the next act.
        before: keys, by tmux's names, before anything is typed.
        typed: text, which is on the screen before any key follows.
        keys: those after it.
        until: what the screen must show, one after the other.
        leaves: the program ends.
    """

    title: str = ""
    before: Sequence[str] = ()
    typed: str = ""
    keys: Sequence[str] = ()
    until: Sequence[str] = ()
    leaves: bool = False


def says(title: str, text: str, until: Sequence[str] = ANSWERED) -> Act:
    """A message or a command is sent."""
    return Act(title, typed=text, keys=("Enter",), until=until)


def gone(pattern: str) -> str:
    """A screen without it. A key right after escape would be taken for one with alt."""
    return rf"\A(?!.*{pattern})"


ACTS = (
    Act("The screen is there before the model", until=("Ask something",)),
    Act("The model is loaded", until=(RESTS,)),
    says("A question", "Name three rivers in Europe."),
    says("A long answer comes", "List 200 animals, one a line.", (ANSWERS, r"length \d")),
    says("Another message waits its turn", "And 200 plants.", ("waits: And 200 plants",)),
    Act("Escape stops the answer, and gives back what waited", keys=("Escape",), until=("stopped", RESTS)),
    Act(before=("C-u",), until=("Write a message",)),
    Act("The question is changed", keys=("M-Up",), until=("Change the question",)),
    Act("Both versions are kept", before=("C-u",), typed="Name five animals.", keys=("Enter",), until=ANSWERED),
    Act("Another answer", keys=("C-r",), until=(*ANSWERED, r"3/3 · ")),
    Act("The version before", keys=("M-Left",), until=(r"2/3",)),
    Act("The first version", keys=("M-Left",), until=(r"1/3",)),
    Act(keys=("M-Right",), until=(r"2/3",)),
    Act("And back to the last", keys=("M-Right",), until=(r"3/3",)),
    Act("F3: what guessing does", keys=("F3",), until=("Speculation",)),
    Act("While an answer comes", keys=("C-r",), until=(ANSWERS, "By depth")),
    Act("When it is over", until=(RESTS, "Accepted lengths|By depth")),
    Act("The tree of the last guesses", keys=("F6", "End"), until=("held · ✗ not drawn",)),
    Act("F4: where each token came from", keys=("F4", "Home"), until=("1 of ",)),
    Act("What else might have stood there", keys=("Right", "Right", "Right"), until=("4 of ", "likeliest:")),
    Act(keys=("Escape",), until=(gone("Where the tokens came from"),)),
    Act("alt+t: an answer waits before every step", keys=("M-t", "C-r"), until=("waits for a key",)),
    Act("alt+n: one step", keys=("M-n",), until=("step 1: ",)),
    Act("F3: the tree of that step", keys=("M-n", "F3"), until=("step 2: ", "Speculation")),
    Act("alt+r: on to the end", keys=("M-r",), until=(RESTS,)),
    Act(keys=("M-t", "F3"), until=("step mode is off", gone("Speculation"))),
    Act("F2: settings of the answers to come", keys=("F2",), until=("Parameters of the next turn",)),
    Act(keys=("Escape",), until=(gone("Parameters of the next turn"),)),
    Act("A/B: with guesses and without", keys=("M-a",), until=("speculative", "escape closes")),
    Act(keys=("Escape",), until=(gone("escape closes"),)),
    Act("Find in the conversation", before=("C-f",), typed="rivers", keys=("Enter",), until=(r"\d of \d",)),
    Act(keys=("Escape",), until=(gone(r"\d of \d"),)),
    Act("A new conversation", keys=("C-n",), until=("a new conversation",)),
    says("", "What is a lighthouse?"),
    Act("All saved conversations", keys=("C-o",), until=("2 saved",)),
    Act("Search in all of them", typed="rivers", until=("1 found",)),
    Act("An older conversation goes on", keys=("Enter",), until=(r"(\d)/\1", RESTS)),
    says("Export", "/export rivers.md", (r"\n │ [^\n]*rivers\.md",)),
    Act("F1: keys and commands", keys=("F1",), until=("You are writing a message",)),
    Act(keys=("Escape",), until=(gone("You are writing a message"),)),
    Act("ctrl+q", keys=("C-q",), leaves=True),
)


@dataclass(frozen=True, slots=True)
class Played:
    """An act and the screen after it."""

    act: Act
    screen: str


def play(screen: Screen, act: Act) -> str:
    """One act; returns what the screen shows then.

    Raises:
        SystemExit: it does not go as it should; the screen is shown.
    """
    for key in act.before:
        screen.press(key)
    if act.typed:
        screen.write(act.typed)
        screen.until(act.typed.replace(".", r"\.").replace("?", r"\?"), PATIENCE, every=EVERY)
    for key in act.keys:
        screen.press(key)
    for pattern in act.until:
        screen.until(pattern, PATIENCE, every=EVERY)
    if act.leaves:
        screen.until_over(PATIENCE)
    return screen.text()


def record(cast: TextIO, folder: Path, target: Path, columns: int, rows: int) -> list[Played]:
    """Plays the acts in ``folder``, which keeps what the program keeps.

    Raises:
        SystemExit: one of them does not go as it should.
    """
    folder.mkdir()
    pipe = folder / "screen"
    os.mkfifo(pipe)
    copy = Cast(pipe, cast, columns, rows)
    home = {name: str(folder) for name in ("XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")}
    home["TEXTUAL_FPS"] = str(PICTURES)
    settings = ["env", "-C", str(folder), *(f"{key}={value}" for key, value in home.items())]
    chat = ["localspec", "chat", "-m", str(target), *OPTIONS]
    played: list[Played] = []
    with Screen([*settings, *chat], columns, rows, COMMAND, pipe) as screen:
        for act in ACTS:
            played.append(Played(act, play(screen, act)))
            print(f"{columns}x{rows} {act.title}")
    copy.close()
    return played


def transcript(sizes: Sequence[tuple[int, int]], played: Sequence[Sequence[Played]]) -> str:
    """Every act that has a title, with the screen of each size."""
    to_watch = " and ".join(f"`asciinema play docs/{cast_name(*size)}`" for size in sizes)
    parts = [
        "# A session on the full screen",
        "<!-- Made by scripts/record_tui.py: do not edit. -->",
        f"What a script did to\n`{COMMAND}`\nin a terminal, and what the screen showed then. Guesses are always as "
        "many as they may be here (`--spec fixed`), so\nthat there is something to see; by default only what pays is "
        "guessed. "
        f"To watch:\n{to_watch}.",
    ]
    for at, act in enumerate(ACTS):
        if act.title:
            parts.append(f"## {act.title}")
            for (columns, rows), one in zip(sizes, played, strict=True):
                screen = one[at].screen
                fence = "````" if "```" in screen else "```"
                parts.append(f"{columns}×{rows}:\n\n{fence}text\n{screen}\n{fence}")
    return "\n\n".join(parts) + "\n"


def cast_name(columns: int, rows: int) -> str:
    return f"tui-session-{columns}x{rows}.cast"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--docs", type=Path, default=Path(__file__).resolve().parent.parent / "docs")
    docs: Path = parser.parse_args().docs
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # takes the terminal along
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        target = requantize(demo_model(), folder / TARGET, "f16")
        played, recordings = [], {}
        for columns, rows in SIZES:
            made = folder / cast_name(columns, rows)
            with made.open("w", encoding="utf-8") as cast:
                played.append(record(cast, folder / f"{columns}", target, columns, rows))
            recordings[made.name] = made.read_text("utf-8")
    (docs / "tui-session.md").write_text(transcript(SIZES, played), encoding="utf-8")
    for name, recording in recordings.items():
        (docs / name).write_text(recording, encoding="utf-8")
        if (size := len(recording.encode())) > LIMIT:
            raise SystemExit(f"{name} has {size} bytes, more than {LIMIT}")


if __name__ == "__main__":
    main()
