"""The comparison on the screen."""

from __future__ import annotations

from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Static

from localspec.backends.fake import FakeTarget, FakeVocab
from localspec.talk.compare import Comparison, Said
from localspec.tui.compare import CompareScreen, Side
from tests.cli.repl.support import chat, engine, run
from tests.tui.controls import ScreenHost, drive, shown


def compared(pilot: Pilot[Any], **changes: Any) -> None:
    """The screen hears a whole comparison."""
    one = chat(engine(FakeTarget(FakeVocab(40), seed=5, spread=9.0, n_ctx=512)), **changes)
    run(one.ask("what?"))
    screen = on(pilot)
    for step in Comparison(one).run():
        screen.hear(step)
    screen.hear(None)


def on(pilot: Pilot[Any]) -> CompareScreen:
    assert isinstance(pilot.app.screen, CompareScreen)
    return pilot.app.screen


def said(pilot: Pilot[Any]) -> str:
    return str(on(pilot).query_one("#outcome", Static).render())


@pytest.mark.parametrize(("size", "beside"), [((100, 30), True), ((50, 30), False), ((36, 24), False)])
def test_both_answers_and_what_came_of_it(size: tuple[int, int], beside: bool) -> None:
    app = ScreenHost(CompareScreen(lambda: None))

    async def scenario(pilot: Pilot[Any]) -> tuple[str, bool, list[str]]:
        compared(pilot, n_predict=40)
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


def test_a_reason_why_not_stays() -> None:
    app = ScreenHost(CompareScreen(lambda: None))

    async def scenario(pilot: Pilot[Any]) -> str:
        on(pilot).tell("nothing guesses. Turn it on with /spec on.")
        on(pilot).hear(None)
        return said(pilot)

    assert drive(app, scenario, size=(50, 30)).endswith("Turn it on with /spec on.")


def test_escape_stops_then_closes() -> None:
    stops: list[str] = []
    app = ScreenHost(CompareScreen(lambda: stops.append("stopped")))

    async def scenario(pilot: Pilot[Any]) -> tuple[str, str]:
        on(pilot).hear(Said("speculative", "word"))
        await pilot.press("escape")
        await pilot.pause(0.1)
        screen, first = shown(pilot), said(pilot)
        assert "word" in screen
        on(pilot).hear(None)
        last = said(pilot)
        await pilot.press("escape")
        await pilot.pause()
        return first, last

    assert drive(app, scenario, size=(50, 30)) == ("stopping …", "stopped")
    assert stops == ["stopped"]
    assert app.results == [None]
