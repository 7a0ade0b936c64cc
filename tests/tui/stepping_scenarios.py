"""What the keys of step mode do, over a short answer."""

from __future__ import annotations

from textual.pilot import Pilot

from localspec.engine import Engine
from localspec.tui.app import LocalspecApp
from localspec.types import Finished
from tests.tui.support import Gated, Scenario, ask, rests, told, turns, until


def waits(app: LocalspecApp) -> bool:
    return app.status_line.status.doing.startswith("waits for a key: ")


def passes(app: LocalspecApp) -> int:
    """Of the target, so far."""
    running = app.conductor.chat.engine
    assert isinstance(running, Engine)
    assert isinstance(running.target, Gated)
    return running.target.passes


async def ask_paced(app: LocalspecApp, pilot: Pilot[None]) -> None:
    """Asks something in step mode; waits before the first step."""
    await rests(app, pilot)
    await pilot.press("alt+t")
    assert told(app).startswith("step mode is on")
    app.composer.write("what?")
    await pilot.press("enter")
    await until(pilot, lambda: waits(app))


async def step_mode(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await ask_paced(app, pilot)
    assert told(app) == ""  # an exchange has begun
    assert app.status_line.status.doing == "waits for a key: alt+n one step, alt+r to the end"
    await pilot.press("alt+t")  # off: the answer goes on by itself, and so does the next
    assert told(app).startswith("step mode is off")
    await rests(app, pilot)
    await ask(app, pilot, "again")
    assert len(turns(app)) == 2


async def step(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await pilot.press("alt+n")
    assert told(app) == "step mode is off: alt+t turns it on"
    await ask_paced(app, pilot)
    trace = app.conductor.chat.trace
    before = passes(app)
    for number in range(1, 6):
        assert len(trace.steps) == number - 1
        await pilot.press("alt+n")
        await until(pilot, lambda n=number: len(trace.steps) == n)  # type: ignore[misc]
    await until(pilot, lambda: waits(app))
    assert passes(app) == before + 5
    await pilot.press("alt+n")
    await rests(app, pilot)
    assert trace.finished is not None
    assert turns(app)[-1][1] == app.conductor.chat.conversation.messages[-1].content != ""
    await pilot.press("alt+n")
    assert told(app) == "no answer waits for a step"


async def run_on(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await ask_paced(app, pilot)
    await pilot.press("alt+r")
    await rests(app, pilot)
    assert isinstance(app.conductor.chat.last, Finished)
    assert app.conductor.chat.last.reason == "stop"
    app.composer.write("the next one waits again")
    await pilot.press("enter")
    await until(pilot, lambda: waits(app))
    await pilot.press("escape")
    await rests(app, pilot)
    await pilot.press("alt+r")
    assert told(app) == "no answer waits for a step"


SCENARIOS: dict[str, Scenario] = {"step-mode": step_mode, "step": step, "run-on": run_on}
