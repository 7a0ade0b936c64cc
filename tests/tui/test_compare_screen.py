"""The comparison on the screen."""

from __future__ import annotations

from collections.abc import Generator
from threading import Event
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Static

from localspec.backends.fake import FakeTarget, FakeVocab
from localspec.talk.compare import Comparison, Said, Step
from localspec.tui.compare import CompareScreen, Side
from tests.cli.repl.support import chat, engine, run
from tests.tui.controls import ScreenHost, drive, shown, until


def comparison(**changes: Any) -> Comparison:
    one = chat(engine(FakeTarget(FakeVocab(40), seed=5, spread=9.0, n_ctx=512)), **changes)
    run(one.ask("what?"))
    return Comparison(one)


def said(pilot: Pilot[Any]) -> str:
    return str(pilot.app.screen.query_one("#outcome", Static).render())


@pytest.mark.parametrize(("size", "beside"), [((100, 30), True), ((50, 30), False), ((36, 24), False)])
def test_both_answers_and_what_came_of_it(size: tuple[int, int], beside: bool) -> None:
    app = ScreenHost(CompareScreen(comparison(n_predict=40)))

    async def scenario(pilot: Pilot[Any]) -> tuple[str, bool, list[str]]:
        await until(pilot, lambda: "same tokens" in said(pilot))
        await pilot.pause(0.1)
        one, other = pilot.app.screen.query(Side)
        texts = [str(side.query_one(".text", Static).render()) for side in (one, other)]
        screen, level = shown(pilot), one.region.y == other.region.y
        await pilot.press("escape")
        await pilot.pause()
        return screen, level, texts

    screen, level, texts = drive(app, scenario, size=size)
    assert level is beside
    assert texts[0] == texts[1] != ""
    for word in ("speculative", "plain", "guesses held", "same tokens: all 40"):
        assert word in " ".join(screen.split())
    assert app.results == [None]


def test_a_reason_why_not() -> None:
    app = ScreenHost(CompareScreen(comparison(spec="off")))

    async def scenario(pilot: Pilot[Any]) -> str:
        await until(pilot, lambda: "nothing guesses" in said(pilot))
        return said(pilot)

    assert drive(app, scenario, size=(50, 30)).endswith("Turn it on with /spec on.")


class Endless(Comparison):
    """Says one word and waits to be stopped."""

    def __init__(self) -> None:
        super().__init__(chat())
        self._end = Event()

    def run(self) -> Generator[Step, None, None]:
        yield Said("speculative", "word")
        self._end.wait()

    def stop(self) -> None:
        self._end.set()


def test_escape_stops_then_closes() -> None:
    app = ScreenHost(CompareScreen(Endless()))

    async def scenario(pilot: Pilot[Any]) -> int:
        await until(pilot, lambda: "word" in shown(pilot))
        await pilot.press("escape")
        await until(pilot, lambda: said(pilot) == "stopped")
        closed = len(app.results)
        await pilot.press("escape")
        await pilot.pause()
        return closed

    assert drive(app, scenario, size=(50, 30)) == 0
    assert app.results == [None]
