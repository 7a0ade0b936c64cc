"""Texts of models, files and names that look like markup or steer terminals: shown as they are, wherever they show."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.segment import Segment
from textual.color import Color
from textual.pilot import Pilot
from textual.widgets import Input

from localspec.chat.store import Store
from localspec.errors import ModelError
from localspec.tools.top.reading import Reading
from localspec.tools.top.source import Mock
from localspec.tui.app import LocalspecApp
from localspec.tui.conductor import Job
from localspec.tui.dialogs import EditQuestion
from localspec.tui.parameters import Field
from localspec.tui.pickers import ModelPicker
from localspec.tui.sessions import SessionsScreen
from localspec.tui.terminal import Harmless
from localspec.tui.top import TopApp
from tests.chat.stores import told as saved
from tests.cli.repl.support import engine
from tests.tui.controls import drive, shown
from tests.tui.controls import until as comes
from tests.tui.panel_scenarios import BIG
from tests.tui.support import Listed, ask, on_screen, rests, running, said, says, screen_text, until

MARKUP = ("[/]", "[bold", "[1]", "a[0]=[b", "[link=x]", "[@click=app.quit]x[/]", "[red]r[/red]")
STEERS = "\x1b[2J\x9b31m\x07\x1b]0;title\x07\x08\x7f"
#: One line of all of it; what is seen of it, where the rest is � or gone.
NASTY = " ".join(MARKUP) + STEERS
SEEN = " ".join(MARKUP)


def harmless(screen: str) -> bool:
    """Whether a screen holds nothing that steers a terminal."""
    return all(char.isprintable() or char == "\xa0" for line in screen.split("\n") for char in line)


@on_screen
async def test_an_answer_that_comes_letter_by_letter_in_every_place() -> None:
    async with running(says(*NASTY), size=(260, 40)) as (app, pilot):
        await pilot.press("f4")
        app.composer.focus()
        await ask(app, pilot, NASTY)
        shown = screen_text(app)
        assert harmless(shown)
        assert shown.count(SEEN) == 2  # question and answer
        await until(pilot, lambda: "\\x1b" in screen_text(app))  # F4 spells what it is made of
        await pilot.press("f3", "f3", "ctrl+f", *"a[0]")
        assert harmless(screen_text(app))


@on_screen
async def test_names_of_models_and_reasons_of_errors() -> None:
    made = says("so")
    made.info = replace(made.info, target=f"/m/a[0]=[b{STEERS}.gguf", draft=f"/m/[bold{STEERS}.gguf")
    async with running(ModelError(NASTY, hint=NASTY), made, size=(220, 40)) as (app, pilot):
        await rests(app, pilot)
        assert screen_text(app).count(SEEN) == 2
        await pilot.press("f5")
        await rests(app, pilot)
        assert " a[0]=[b" in app.status_line.status.line(220)
        for command in (
            "/model",
            "/draft",
            f"/read {NASTY}",
            f"/nothing{NASTY}",
            f"/session {NASTY}",
            f"/save /x/{NASTY}",
        ):
            app.conductor.put(Job("command", command))
        await rests(app, pilot)
        assert harmless(screen_text(app))
        assert "model /m/a[0]=[b" in said(app)


@on_screen
async def test_lines_that_go_away_by_themselves_and_titles(tmp_path: Path) -> None:
    store = Store(tmp_path / "sessions.db")
    saved(store, NASTY, NASTY, NASTY)
    async with running(says("so"), store=store, size=(160, 40), notifications=True) as (app, pilot):
        await rests(app, pilot)
        app.tell(NASTY)
        await until(pilot, lambda: "[bold [1] a[0]=[b [link=x]" in screen_text(app))
        assert harmless(screen_text(app))
        app.clear_notifications()
        await pilot.press("ctrl+o")
        await until(pilot, lambda: isinstance(app.screen, SessionsScreen) and SEEN in screen_text(app))
        await pilot.press(*"bold")
        await until(pilot, lambda: "1 found" in screen_text(app))
        assert harmless(screen_text(app))
        await pilot.press("ctrl+r")  # its title in an editor
        assert harmless(screen_text(app))
        await pilot.press("escape", "enter")
        await rests(app, pilot)
        await until(pilot, lambda: f"going on with {SEEN}" in screen_text(app))
        assert harmless(screen_text(app))


async def compose(app: LocalspecApp, pilot: Pilot[None]) -> None:
    app.composer.write(NASTY)


async def wait(app: LocalspecApp, pilot: Pilot[None]) -> None:
    app.keep_waiting((NASTY,))
    app._show_waiting((NASTY,))


async def find(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await pilot.press("ctrl+f")
    app.find_bar.query_one(Input).value = NASTY


async def edit(app: LocalspecApp, pilot: Pilot[None]) -> None:
    app.push_screen(EditQuestion(NASTY, app.offers, app.scales.lines, app.keys))


async def parameter(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await pilot.press("f2")
    await until(pilot, lambda: isinstance(app.focused, Field))
    assert isinstance(app.focused, Field)
    app.focused.value = NASTY


async def picker(app: LocalspecApp, pilot: Pilot[None]) -> None:
    app.opener.models = Listed(replace(BIG, name=NASTY, path=Path(NASTY)))  # type: ignore[attr-defined]
    await pilot.press("f7")
    await until(pilot, lambda: isinstance(app.screen, ModelPicker) and "1 of 1 models" in screen_text(app))


@pytest.mark.parametrize("place", [compose, wait, find, edit, parameter, picker])
@on_screen
async def test_what_is_edited_and_what_is_chosen(place: Callable[[LocalspecApp, Pilot[None]], Awaitable[None]]) -> None:
    async with running(says("so"), size=(160, 40)) as (app, pilot):
        await rests(app, pilot)
        await place(app, pilot)
        await until(pilot, lambda: "[bold" in screen_text(app))
        assert harmless(screen_text(app))


def test_what_is_edited_is_kept_as_it_is() -> None:
    """Only the drawing is harmless: a log that is pasted reaches the model whole."""

    @on_screen
    async def scenario() -> None:
        async with running(engine()) as (app, pilot):
            await rests(app, pilot)
            app.composer.write(NASTY)
            await pilot.press("enter")
            await rests(app, pilot)
            assert app.conductor.chat.conversation.turns[0].message.content == NASTY

    scenario()


def test_what_a_server_says() -> None:
    class Evil(Mock):
        def read(self) -> Reading:
            return replace(super().read(), model=NASTY, build=NASTY, missing=(NASTY,))

    async def scenario(pilot: Pilot[Any]) -> str:
        await comes(pilot, lambda: "[bold" in shown(pilot))
        return shown(pilot)

    assert harmless(drive(TopApp(Evil(), interval=0.02), scenario, size=(160, 30)))


def test_the_last_gate_changes_nothing_but_what_steers() -> None:
    kept = Segment("é 日本 \xa0 ✓ ─")
    drawn = Harmless().apply([kept, Segment("a\x1b[0m\x9bb\ud800\x85\x00")], Color(0, 0, 0))
    assert [one.text for one in drawn] == [kept.text, "a[0mb�"]
