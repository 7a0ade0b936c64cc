"""What the full screen costs: ``python -m scripts.ui_cost [--pairs N] [--tokens N] [--only PART …]``.

Five numbers, as a Markdown table, and how busy the machine was. Run it on a quiet machine; it takes about six minutes.

* speed: answers of the demo model by ``localspec complete`` and on the full screen, in pairs, each first in half of
  them, with the same prompt and settings (one thread, greedy, no guesses). The engine's own tokens per second.
* cpu: user and system time of the screen's process for those answers, from enter until a second after the end. The
  engine lives in a process of its own.
* keys: from a key to its sign on the screen while the demo model answers.
* session: a saved conversation of 2,000 messages is opened by a command, then scrolled.
* long: an answer of 200 kB, as prose with lists, tables and code, and as one block of code, from an engine that says a
  text at a steady rate: the processor time of the last fifth beside that of the first, and how late text comes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from localspec.chat.conversation import Turn
from localspec.chat.store import Entry, Session, Store, new_id, now
from localspec.types import Message
from scripts.ui_terminal import ROOT, FullScreen, environment

PROMPTS = (
    "Write a long story about a lighthouse keeper and the sea.",
    "Write a Python class for a bank account, with many methods. Then explain each of them.",
    "List 60 animals, numbered, with a sentence about each of them.",
)
SETTINGS = ("-t", "1", "--temp", "0", "-s", "1", "--spec", "off", "--ignore-eos")
#: Letters that no English answer has.
LETTERS = "абвгдежзийклмнопрстуфхцчшщъыьэюяαβγδεζηθικλμνξπρστυφχψωաբգդեզէըթժիլխծկհձղճմյնշոչպջռսվտրցւփքօֆ"
EXCHANGES = 1000
LONG, RATE, PIECE = 200_000, 250.0, 40  # characters; pieces a second; characters
PATIENCE = 300.0


@dataclass(frozen=True, slots=True)
class Row:
    """A number beside what it should be."""

    what: str
    target: str
    measured: str
    met: bool


@dataclass(frozen=True, slots=True)
class Pair:
    """One answer on the screen and one by ``complete``: tokens per second; ``cpu`` of the screen for 1,000 tokens."""

    screen: float
    complete: float
    cpu: float

    @property
    def ratio(self) -> float:
        return self.screen / self.complete


# -- the demo model


def speed_and_cpu(pairs: int, tokens: int) -> list[Row]:
    done: list[Pair] = []
    for number in range(pairs):
        prompt = PROMPTS[number % len(PROMPTS)]
        if number % 2:
            complete = completed(prompt, tokens)
            screen, cpu = on_screen(prompt, tokens)
        else:
            screen, cpu = on_screen(prompt, tokens)
            complete = completed(prompt, tokens)
        done.append(Pair(screen, complete, cpu))
        say(f"pair {number + 1}: {screen:.1f} and {complete:.1f} tok/s ({done[-1].ratio:.3f}), {cpu:.2f} s / 1,000 tok")
    ratios, costs = sorted(one.ratio for one in done), sorted(one.cpu for one in done)
    ratio, cost = median(ratios), median(costs)
    return [
        Row(
            f"speed with the screen, of `complete` ({pairs} pairs of {tokens} tokens)",
            "≥ 0.95",
            f"{ratio:.3f} ({ratios[0]:.3f} … {ratios[-1]:.3f})",
            ratio >= 0.95,
        ),
        Row("processor time for 1,000 tokens", "≤ 5 s", f"{cost:.2f} s ({costs[0]:.2f} … {costs[-1]:.2f})", cost <= 5),
    ]


def completed(prompt: str, tokens: int) -> float:
    """Tokens per second of ``localspec complete``."""
    command = [sys.executable, "-m", "localspec", "complete", "-cnv", "-p", prompt, "-m", "demo", "--json"]
    with home() as folder:
        done = subprocess.run(
            [*command, *SETTINGS, "-n", str(tokens)],
            cwd=ROOT,
            env=environment(folder, {}),
            capture_output=True,
            timeout=PATIENCE,
            check=True,
        )
    return float(json.loads(done.stdout)["timings"]["predicted_per_second"])


def on_screen(prompt: str, tokens: int) -> tuple[float, float]:
    """The same on the full screen, and its processor time for 1,000 tokens."""
    with home() as folder, FullScreen("-m", "demo", *SETTINGS, "-n", str(tokens), home=folder) as screen:
        screen.until("ready", PATIENCE)
        screen.wait(1.0)
        before = screen.cpu
        screen.send(f"{prompt}\r")
        footer = screen.until(rf"{tokens} tok · ([\d.]+) tok/s", PATIENCE)
        screen.wait(1.0)
        return float(footer[1]), 1000 * (screen.cpu - before) / tokens


def keys(presses: int) -> list[Row]:
    """Each sign is taken back before the next one is typed."""
    waits: list[float] = []
    pause = random.Random(1)
    with home() as folder, FullScreen("-m", "demo", *SETTINGS, "-n", "-1", home=folder) as screen:
        screen.until("ready", PATIENCE)
        screen.send(f"{PROMPTS[0]}\r")
        screen.until("answering", PATIENCE)
        for number in range(presses):
            letter = LETTERS[number % len(LETTERS)]
            screen.wait(pause.uniform(0.03, 0.15))
            screen.send(letter)
            began = time.monotonic()
            screen.until(letter)
            waits.append(time.monotonic() - began)
            screen.send("\x7f")
    waits.sort()
    middle, late = 1000 * median(waits), 1000 * waits[round(0.99 * (len(waits) - 1))]
    return [
        Row(
            f"key to screen while an answer comes, p99 ({presses} keys)",
            "≤ 100 ms",
            f"{late:.0f} ms (median {middle:.0f}, longest {1000 * waits[-1]:.0f})",
            late <= 100,
        )
    ]


# -- a long session


def long_session() -> list[Row]:
    with home() as folder:
        session = saved_session(folder)
        script = folder / "said.txt"
        script.write_text("yes")
        with FullScreen("-m", str(script), home=folder, module="scripts.scripted") as screen:
            screen.until("ready", PATIENCE)
            screen.wait(1.0)
            screen.send(f"/session {session}\r")
            began = time.monotonic()
            screen.until(f"№{2 * EXCHANGES}")
            opened = time.monotonic() - began
            screen.wait(2.0)
            scrolled = [scroll(screen, "\x1b[5~") for _ in range(12)]
            first = scroll(screen, "\x1b[1;5H")
        began = time.monotonic()
        with FullScreen("--resume", "-m", str(script), home=folder, module="scripts.scripted") as screen:
            screen.until(f"№{2 * EXCHANGES}")
            resumed = time.monotonic() - began
    return [
        Row(
            f"a session of {2 * EXCHANGES:,} messages opens",
            "≤ 1 s",
            f"{opened:.2f} s (with the start of the program, `--resume`: {resumed:.2f} s)",
            opened <= 1,
        ),
        Row(
            "and scrolls: a page, or back to what was not shown yet",
            "≤ 0.1 s, ≤ 1 s",
            f"{1000 * median(scrolled):.0f} ms (longest {1000 * max(scrolled):.0f}), {first:.2f} s",
            median(scrolled) <= 0.1 and first <= 1,
        ),
    ]


def scroll(screen: FullScreen, key: str) -> float:
    """Seconds until there is something on the screen that was not there before."""
    screen.wait(0.5)
    screen.send(key)
    began = time.monotonic()
    screen.until("№")
    return time.monotonic() - began


def saved_session(folder: Path) -> str:
    """Questions and answers of all kinds; every piece of them has the number of its message."""
    parent: str | None = None
    entries: list[Entry] = []
    for number in range(1, 2 * EXCHANGES + 1):
        role, text = ("assistant", answer(number)) if number % 2 == 0 else ("user", f"№{number}: what is it?")
        message = Message("assistant" if role == "assistant" else "user", text)
        entries.append(Entry(new_id(), parent, Turn(message), now()))
        parent = entries[-1].id
    session = Session(new_id(), title="long", created=now(), updated=now(), leaf=parent)
    with closing(Store(folder / "localspec" / "sessions.db")) as store:
        store.open()
        store.take_in(session, entries)
    return session.id


def answer(number: int) -> str:
    sentence = f"№{number} says that the river runs by old stone walls, *under* a bridge that `nobody` crosses. "
    kinds = (
        f"{sentence * 4}\n\n{sentence * 3}",
        f"{sentence}\n\n" + "".join(f"- №{number} item {n}\n" for n in range(8)),
        f"{sentence}\n\n```python\n" + "".join(f"x{n} = [{n}]  # №{number}\n" for n in range(12)) + "```\n",
        f"## №{number}\n\n| a | b |\n|---|---|\n" + "".join(f"| {n} | №{number} |\n" for n in range(6)),
    )
    return kinds[number // 2 % len(kinds)] + f"\n\n№{number}"


# -- a long answer


def long_answer(name: str, text: str) -> Row:
    """``text`` has a mark with a number wherever the screen will show it."""
    rate = {"LOCALSPEC_SCRIPT_RATE": str(RATE), "LOCALSPEC_SCRIPT_PIECE": str(PIECE)}
    total = len(text) / PIECE / RATE
    used, late = [], []
    with home() as folder:
        script = folder / "said.txt"
        script.write_text(text)
        with FullScreen("-m", str(script), home=folder, module="scripts.scripted", env=rate) as screen:
            screen.until("ready", PATIENCE)
            screen.send("go\r")
            screen.until("№")
            began = time.monotonic()
            for part in range(1, 6):
                used.append(screen.cpu)
                while (now_at := time.monotonic() - began) < part * total / 5:
                    shown = [int(mark) for mark in re.findall(r"№(\d+)№", screen.text)]
                    screen.send("")
                    screen.wait(0.5)
                    if shown:
                        late.append((part, now_at - max(shown) / PIECE / RATE))
            used.append(screen.cpu)
            screen.until(r"\d tok ·", PATIENCE)
            end = time.monotonic() - began - total
            screen.wait(1.0)
            rest = screen.cpu - used[-1]
    shares = [after - before for before, after in pairwise(used)]
    first, last = (median(seconds for part, seconds in late if part == which) for which in (1, 5))
    return Row(
        f"an answer of {LONG // 1000} kB, {name}: the last fifth beside the first",
        "≤ 1.25 ×",
        f"{shares[-1] / shares[0]:.2f} × the processor time ({shares[0]:.2f} s, {shares[-1]:.2f} s), text {first:.1f} s"
        f" and {last:.1f} s late; the end {end:.1f} s late, {rest:.1f} s of processor time",
        shares[-1] <= 1.25 * shares[0] and last <= first + 0.5,
    )


def marked(block: Callable[[int], str], *, opener: str = "") -> str:
    """200 kB of blocks, each with its place in the text."""
    text = opener
    while len(text) < LONG:
        text += block(len(text))
    return text


def mixed(at: int) -> str:
    return answer(2 * (at % 4)).replace(f"№{2 * (at % 4)}", f"№{at}№") + "\n\n"


def code(at: int) -> str:
    return f"def function_{at}(values):  # №{at}№\n    return [value + {at} for value in values if value]\n"


# -- all together


@contextmanager
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def table(rows: Sequence[Row]) -> str:
    lines = [f"| {row.what} | {row.target} | {row.measured} | {'yes' if row.met else '**no**'} |" for row in rows]
    return "\n".join(["| what | target | measured | met |", "| --- | --- | --- | --- |", *lines])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--keys", type=int, default=300)
    parts: dict[str, Callable[[], list[Row]]] = {
        "speed": lambda: speed_and_cpu(args.pairs, args.tokens),
        "keys": lambda: keys(args.keys),
        "session": long_session,
        "long": lambda: [
            long_answer("of all kinds", marked(mixed)),
            long_answer("one block of code", marked(code, opener="```python\n")),
        ],
    }
    parser.add_argument("--only", nargs="+", choices=parts, default=[*parts])
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # takes the terminals along
    before, rows = os.getloadavg(), []
    for name in args.only:
        say(f"{name} …")
        rows += parts[name]()
    print(table(rows))
    print(f"\nLoad of the machine ({os.cpu_count()} cores): {before[0]:.1f} before, {os.getloadavg()[0]:.1f} after.")
    return 0 if all(row.met for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
