"""The main states of the screen, over an engine without weights.

python -m tests.tui.scenes                    writes tests/tui/screens/ anew
python -m tests.tui.scenes --pictures FOLDER  writes SVG pictures to look at instead
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

from textual.pilot import Pilot
from textual.widgets import Input, TextArea

from localspec.chat.store import Store
from localspec.hub.vocabulary import Vocabulary
from localspec.tui.app import LocalspecApp
from tests.chat.stores import told
from tests.tui.grid import Grid
from tests.tui.panel_scenarios import BIG, SMALL
from tests.tui.staged import DRAFT, TARGET, Staged, no_time, staged
from tests.tui.support import FakeOpener, Listed, Scenario, ask, hold, rests, running, screen_text, target_of, until

SCREENS = Path(__file__).with_name("screens")
ALL = WIDE, USUAL, NARROW = (120, 40), (80, 24), (40, 24)
QUESTION = "Write a function that adds up the even numbers of a list."
OPTIONS = {"draft_n_max": 4, "tree_nodes": 8, "tree_width": 2}
MODELS = (
    replace(BIG, name=TARGET, path=Path(TARGET), size=1_820_000_000, quant="Q8_0", parameters=1_710_000_000),
    replace(SMALL, name=DRAFT, path=Path(DRAFT), size=97_000_000, quant="Q4_1", parameters=135_000_000),
    replace(
        BIG,
        name="Qwen2.5-0.5B-Instruct-Q8_0.gguf",
        size=531_000_000,
        quant="Q8_0",
        parameters=494_000_000,
        vocabulary=Vocabulary("gpt2", "qwen2", 151_936, "y"),
    ),
    replace(BIG, name="half a download.gguf", size=12_000_000, fault="it ends in the middle of its tensors"),
)


async def empty(app: LocalspecApp, pilot: Pilot[None]) -> None:
    """Nothing was said yet."""


async def loading(app: LocalspecApp, pilot: Pilot[None]) -> None:
    opener_of(app).gate.clear()
    await pilot.press("f5")
    await until(pilot, lambda: app.status_line.status.share is not None)


async def streaming(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await _half(app, pilot)
    app.composer.write("and in Rust?")


async def _half(app: LocalspecApp, pilot: Pilot[None]) -> None:
    """The engine waits within an answer."""
    hold(app, after=9)
    app.composer.write(QUESTION)
    await pilot.press("enter")
    await until(pilot, target_of(app).held.is_set)


async def answered(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await ask(app, pilot, QUESTION)


async def waiting(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await _half(app, pilot)
    for text in ("And in Rust?", "Which of them is faster?"):
        app.composer.write(text)
        await pilot.press("enter")


async def parameters(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await ask(app, pilot, QUESTION)
    await pilot.press("f2", "down", "5", "x")


async def statistics(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await pilot.press("f3")
    await ask(app, pilot, QUESTION)


async def provenance(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await statistics(app, pilot)
    await pilot.press("f4", "home", *["right"] * 9)


async def compare(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await ask(app, pilot, QUESTION)
    await pilot.press("alt+a")
    await until(pilot, lambda: "same tokens" in screen_text(app))
    await rests(app, pilot)


async def sessions(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await _saved(app, pilot)


async def found(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await _saved(app, pilot)
    await pilot.press(*"rivers")
    await until(pilot, lambda: "2 found" in screen_text(app))


async def _saved(app: LocalspecApp, pilot: Pilot[None]) -> None:
    """Three conversations beside the one that is open, one of them pinned."""
    book = app.conductor.book
    assert book is not None
    told(book.store, "Rivers of Europe", "Name three rivers in Europe.", "The Danube, the Rhine and the Volga.")
    pinned = told(book.store, "Notes on 猫 [b]and[/b] dogs", "Do cats swim?", "Some do, in rivers even.")
    told(
        book.store,
        "A letter to the house committee about the lift, which has been out of order since Tuesday",
        "x",
        "y",
    )
    book.store.pin(pinned.id, True)
    await ask(app, pilot, QUESTION)
    await pilot.press("ctrl+o")
    await until(pilot, lambda: "4 saved" in screen_text(app))


async def models(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await pilot.press("f7")
    await until(pilot, lambda: "4 of 4 models ·" in screen_text(app))


async def drafts(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await pilot.press("f8")
    await until(pilot, lambda: "4 of 4 models ·" in screen_text(app))


async def help_(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await pilot.press("f1")


async def palette(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await pilot.press("ctrl+p", *"stat")
    await until(pilot, lambda: "Statistics" in screen_text(app))


async def edit(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await ask(app, pilot, QUESTION)
    await pilot.press("alt+up")
    await until(pilot, lambda: len(app.screen_stack) == 2)


async def offers(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await pilot.press(*"/s")
    await pilot.press("tab")


async def find(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await ask(app, pilot, QUESTION)
    await pilot.press("ctrl+f", *"even", "enter")


async def died(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await ask(app, pilot, QUESTION)
    target = target_of(app)
    assert isinstance(target, Staged)
    target.dies = True
    await ask(app, pilot, "And in Rust?")


def opener_of(app: LocalspecApp) -> FakeOpener:
    assert isinstance(app.opener, FakeOpener)
    return app.opener


@dataclass(frozen=True, slots=True)
class Scene:
    """``plays`` brings the screen there; ``theme`` and ``colour`` are how it is drawn."""

    plays: Scenario
    sizes: Sequence[tuple[int, int]] = (WIDE, USUAL)
    theme: str = "textual-dark"
    colour: bool = True


SCENES: dict[str, Scene] = {
    "empty": Scene(empty, ALL),
    "loading": Scene(loading),
    "streaming": Scene(streaming),
    "answered": Scene(answered, ALL),
    "waiting": Scene(waiting, (USUAL,)),
    "parameters": Scene(parameters, ALL),
    "statistics": Scene(statistics, ALL),
    "provenance": Scene(provenance, ALL),
    "compare": Scene(compare, ALL),
    "sessions": Scene(sessions, ALL),
    "found": Scene(found),
    "models": Scene(models),
    "drafts": Scene(drafts, ALL),
    "help": Scene(help_, ALL),
    "palette": Scene(palette, (USUAL,)),
    "edit": Scene(edit, (USUAL, NARROW)),
    "offers": Scene(offers, (USUAL,)),
    "find": Scene(find, (USUAL,)),
    "died": Scene(died, ALL),
    "provenance-nocolor": Scene(provenance, (USUAL,), colour=False),
    "statistics-nocolor": Scene(statistics, (WIDE,), colour=False),
    "statistics-ansi": Scene(statistics, (WIDE,), theme="ansi-dark"),
    "answered-ansi": Scene(answered, (USUAL,), theme="ansi-light"),
    "sessions-ansi": Scene(sessions, (USUAL,), theme="ansi-dark"),
}


@asynccontextmanager
async def played(scene: Scene, size: tuple[int, int]) -> AsyncIterator[tuple[LocalspecApp, Pilot[None]]]:
    """The app, when the scene is on the screen and nothing moves there."""
    with tempfile.TemporaryDirectory() as folder, no_time(), _surroundings(folder, colour=scene.colour):
        engine = staged()
        opener = FakeOpener(engine)
        opener.models = Listed(*MODELS)
        store = Store(Path(folder) / "sessions.db")
        async with running(size=size, opener=opener, options=OPTIONS, store=store) as (app, pilot):
            app.theme = scene.theme
            app.composer.cursor_blink = False  # it is seen behind dialogues, too
            await rests(app, pilot)
            try:
                await scene.plays(app, pilot)
                await still(app, pilot)
                yield app, pilot
            finally:
                opener.gate.set()
                assert isinstance(engine.target, Staged)
                engine.target.let_go()


@contextmanager
def _surroundings(folder: str, *, colour: bool) -> Iterator[None]:
    """Neither the user's settings nor this machine and day."""
    places = dict.fromkeys(("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"), folder)
    with ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, places))
        os.environ.pop("NO_COLOR", None)
        if not colour:
            os.environ["NO_COLOR"] = "1"
        silent, log = logging.NullHandler(), logging.getLogger("localspec")  # a host process has a log of its own
        log.addHandler(silent)
        stack.callback(log.removeHandler, silent)
        stack.enter_context(mock.patch("localspec.talk.verdicts.available_bytes", return_value=8 * 10**9))
        stack.enter_context(mock.patch("localspec.engine.engine.resident_bytes", return_value=1_940_000_000))
        stack.enter_context(mock.patch("localspec.tui.sessions.local", return_value="2026-03-01 12:00"))
        yield


async def still(app: LocalspecApp, pilot: Pilot[None]) -> None:
    """Until all that came is drawn, with cursors that do not blink and no line that goes away by itself."""
    for widget in app.screen.query("TextArea, Input"):
        assert isinstance(widget, TextArea | Input)
        widget.cursor_blink = False
    await until(pilot, lambda: not app.conductor.mailbox and not app._showing and app._drawing is None)
    app.clear_notifications()
    app.status_line.show(app.status_line.status)  # it may have numbers that wait to be drawn
    shown = ""
    while shown != (shown := screen_text(app)):
        await pilot.pause(0.05)


def path(name: str, size: tuple[int, int]) -> Path:
    return SCREENS / f"{name}-{size[0]}x{size[1]}.txt"


async def _write(names: Sequence[str], pictures: Path | None) -> None:
    for name, scene in SCENES.items():
        for size in scene.sizes if not names or name in names else ():
            async with played(scene, size) as (app, _pilot):
                if pictures is None:
                    path(name, size).write_text(Grid.of(app).written(), encoding="utf-8")
                else:
                    picture = app.export_screenshot(title=name)
                    (pictures / f"{name}-{size[0]}x{size[1]}.svg").write_text(picture, encoding="utf-8")
                print(name, *size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="of scenes; by default all")
    parser.add_argument("--pictures", type=Path, metavar="FOLDER")
    args = parser.parse_args()
    (args.pictures or SCREENS).mkdir(exist_ok=True)
    asyncio.run(_write(args.names, args.pictures))


if __name__ == "__main__":
    main()
