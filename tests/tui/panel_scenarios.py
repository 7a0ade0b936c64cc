"""What panels, models and guesses do by their keys, over a short answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from textual.pilot import Pilot

from localspec.backends.memory import CacheShape
from localspec.hub.vocabulary import Vocabulary
from localspec.talk.catalogue import Model
from localspec.tui.app import LocalspecApp
from localspec.tui.conductor import Job
from localspec.tui.parameters import Field, Parameters, Row
from localspec.tui.pickers import ModelPicker
from localspec.tui.provenance import Provenance, TokenText
from localspec.tui.stats import StatsPanel
from tests.tui.support import FakeOpener, Listed, Scenario, ask, rests, said, screen_text, told, until

BIG = Model(
    "big.gguf",
    Path("big.gguf"),
    2_000_000,
    "F16",
    1_000_000,
    "llama",
    64,
    CacheShape(1, 8, 8),
    Vocabulary("gpt2", "default", 49_152, "x"),
    chats=True,
)
SMALL = replace(BIG, name="a small one.gguf", path=Path("a small one.gguf"), size=150_000)


async def parameters(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await rests(app, pilot)
    await pilot.press("f2")
    await pilot.pause()
    assert isinstance(app.side.panel, Parameters)
    assert isinstance(app.focused, Field)
    app.conductor.put(Job("command", "/set temp 0.375"))
    await until(pilot, lambda: shown_value(app, "temp") == "0.375")
    await pilot.press("alt+p")
    await until(pilot, lambda: "there are none yet" in screen_text(app))
    await pilot.press("escape")
    await until(pilot, lambda: len(app.screen_stack) == 1)
    await pilot.press("escape")
    await until(pilot, lambda: app.side.panel is None)
    assert app.composer.has_focus


def shown_value(app: LocalspecApp, name: str) -> str:
    """What the panel shows of a setting."""
    return next(row.field.value for row in app.query(Row) if row.option.name == name)


async def statistics(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await pilot.press("f3")
    assert isinstance(app.side.panel, StatsPanel)
    assert app.composer.has_focus  # one writes on
    assert app.conductor.chat.watchers
    await ask(app, pilot, "a")
    await until(pilot, lambda: "6 steps" in screen_text(app))
    await pilot.press("f3")
    await until(pilot, lambda: app.side.panel is None)
    assert not app.conductor.chat.watchers


async def provenance(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await ask(app, pilot, "a")  # without a trace: what is known is shown all the same
    await pilot.press("f4")
    assert isinstance(app.side.panel, Provenance)
    await until(pilot, lambda: "1 of 5" in screen_text(app))
    await pilot.press("right")
    await until(pilot, lambda: "2 of 5" in screen_text(app))
    await pilot.press("escape")
    await until(pilot, lambda: app.side.panel is None)


async def focus(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await pilot.press("f3", "f6")
    assert app.focused is app.side.panel
    await pilot.press("f6")
    assert app.composer.has_focus
    await pilot.press("f4")
    assert isinstance(app.focused, TokenText)
    await pilot.press("f4", "f6")
    assert app.transcript.has_focus


async def model(app: LocalspecApp, pilot: Pilot[None]) -> None:
    opener = opener_of(app)
    opener.models = Listed(BIG, SMALL)
    await pilot.press("f7")
    await until(pilot, lambda: isinstance(app.screen, ModelPicker) and "2 of 2 models" in screen_text(app))
    await pilot.press(*"small", "enter")
    await until(pilot, lambda: opener.opened[-1]["model"] == SMALL.name)
    await rests(app, pilot)
    assert "model " in said(app)


async def draft(app: LocalspecApp, pilot: Pilot[None]) -> None:
    opener = opener_of(app)
    await pilot.press("f8")
    await until(pilot, lambda: "none is loaded" in told(app))
    opener.models = Listed(BIG, SMALL)
    await pilot.press("f8")
    await until(pilot, lambda: isinstance(app.screen, ModelPicker) and "2 of 2 models" in screen_text(app))
    await pilot.press("down", "enter")
    await until(pilot, lambda: opener.opened[-1]["model_draft"] == SMALL.name)
    await rests(app, pilot)


def opener_of(app: LocalspecApp) -> FakeOpener:
    assert isinstance(app.opener, FakeOpener)
    return app.opener


async def speculation(app: LocalspecApp, pilot: Pilot[None]) -> None:
    seen = []
    for _ in range(3):
        await pilot.press("alt+s")
        seen.append(app.conductor.chat.values["spec"])
        await until(pilot, lambda: told(app) == f"spec = {seen[-1]}")
        assert ("speculation off" in screen_text(app)) is (seen[-1] == "off")
    assert sorted(seen) == ["auto", "fixed", "off"]
    assert len(opener_of(app).opened) == 1


async def guess_more(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await deepens(app, pilot, "alt+k", 1)


async def guess_less(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await deepens(app, pilot, "alt+j", -1)


async def deepens(app: LocalspecApp, pilot: Pilot[None], key: str, by: int) -> None:
    app.conductor.put(Job("command", "/spec n-max 4"))
    await rests(app, pilot)
    await pilot.press(key)
    assert app.conductor.chat.values["draft_n_max"] == 4 + by
    await until(pilot, lambda: told(app) == f"n-max = {4 + by}")


async def compare(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await ask(app, pilot, "a")
    await pilot.press("alt+a")
    await until(pilot, lambda: "same tokens: all 5" in screen_text(app))
    await rests(app, pilot)
    await pilot.press("escape")
    await until(pilot, lambda: len(app.screen_stack) == 1)
    assert len(app.conductor.chat.conversation.turns) == 2


SCENARIOS: dict[str, Scenario] = {
    "parameters": parameters,
    "statistics": statistics,
    "provenance": provenance,
    "focus": focus,
    "model": model,
    "draft": draft,
    "speculation": speculation,
    "guess-more": guess_more,
    "guess-less": guess_less,
    "compare": compare,
}
