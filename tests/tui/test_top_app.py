"""The dashboard of a server."""

from __future__ import annotations

from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Sparkline, Static

from localspec.errors import NetworkError
from localspec.tools.top.reading import Reading
from localspec.tools.top.source import Mock
from localspec.tui.top import TopApp
from tests.tui.controls import drive, shown, until


class Counted(Mock):
    """Counts looks; ``gone`` does not answer."""

    def __init__(self) -> None:
        super().__init__(step=1.0)
        self.looks = 0
        self.gone = False

    def read(self) -> Reading:
        self.looks += 1
        if self.gone:
            raise NetworkError("mock cannot be reached: gone", hint="Start it.")
        return super().read()


@pytest.mark.parametrize("size", [(100, 30), (50, 30), (36, 30)])
@pytest.mark.parametrize("plain", [False, True])
def test_a_server_is_shown(size: tuple[int, int], plain: bool) -> None:
    source = Counted()

    async def scenario(pilot: Pilot[Any]) -> tuple[str, int]:
        await until(pilot, lambda: source.looks > 8)
        await pilot.pause()
        return shown(pilot), pilot.app.query_one(DataTable).row_count

    screen, slots = drive(TopApp(source, interval=0.02, plain=plain), scenario, size=size)
    assert slots == 2
    for word in ("mock-model.gguf", "tok/s", "accepted", "depth 1", "slot"):
        assert word in screen


def test_keys() -> None:
    source = Counted()
    app = TopApp(source, interval=1.0)

    async def scenario(pilot: Pilot[Any]) -> list[Any]:
        await until(pilot, lambda: source.looks > 0)
        seen: list[Any] = []
        await pilot.press("plus")
        seen.append(app.interval)
        await pilot.press("minus", "minus")
        seen.append(app.interval)
        await pilot.press("p")
        await pilot.pause()
        seen += [app.paused, "paused" in str(app.query_one("#summary", Static).render())]
        await pilot.press("p")
        seen.append(app.paused)
        await pilot.press("q")
        await pilot.pause()
        return seen

    assert drive(app, scenario, size=(60, 30)) == [0.5, 2.0, True, True, False]


def test_a_pause_is_one() -> None:
    source = Counted()
    app = TopApp(source, interval=0.02)

    async def scenario(pilot: Pilot[Any]) -> tuple[int, int]:
        await until(pilot, lambda: source.looks > 3)
        await pilot.press("p")
        await until(pilot, lambda: not app._looking)
        before = source.looks
        await pilot.pause(0.05)
        paused = source.looks - before
        await pilot.press("p")
        await until(pilot, lambda: source.looks > before)
        return paused, source.looks - before

    paused, after = drive(app, scenario, size=(60, 30))
    assert paused == 0
    assert after > 0


def test_a_server_that_goes_and_comes() -> None:
    source = Counted()
    app = TopApp(source, interval=0.02)

    async def scenario(pilot: Pilot[Any]) -> list[str]:
        def said() -> str:
            return str(app.query_one("#summary", Static).render())

        await until(pilot, lambda: "ready" in said())
        source.gone = True
        await until(pilot, lambda: "unreachable" in said())
        lost = said()
        source.gone = False
        await until(pilot, lambda: "ready" in said() and "unreachable" not in said())
        return [lost, said()]

    lost, found = drive(app, scenario, size=(60, 30))
    assert "mock cannot be reached" in lost
    assert "tok/s" in found


def test_the_curve_is_there_unless_ascii_is_asked_for() -> None:
    async def scenario(pilot: Pilot[Any]) -> int:
        return len(pilot.app.query(Sparkline))

    assert drive(TopApp(Counted(), interval=9.0), scenario, size=(60, 30)) == 1
    assert drive(TopApp(Counted(), interval=9.0, plain=True), scenario, size=(60, 30)) == 0
