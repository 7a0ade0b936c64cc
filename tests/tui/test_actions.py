"""Every action of the registry, by its key; and where the registry is shown."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from localspec.chat.store import Store
from localspec.talk.commands import COMMANDS
from localspec.tui import actions
from localspec.tui.app import LocalspecApp
from localspec.tui.dialogs import EditQuestion, Help
from localspec.tui.sessions import SessionsScreen
from localspec.tui.turns import Turn
from tests.tui import panel_scenarios, stepping_scenarios
from tests.tui.support import (
    Scenario,
    ask,
    hold,
    on_screen,
    release,
    rests,
    running,
    said,
    says,
    screen_text,
    turns,
    until,
)

THOUGHT = ("<think>", "first this", ", then that", "</think>")
CODE = "```py\nx = 1\n```\n\n```py\ny = 2\n```\n"


async def send(app: LocalspecApp, pilot: Pilot[None]) -> None:
    app.composer.write("what?")
    await pilot.press("enter")
    await rests(app, pilot)
    assert turns(app)[-1] == ("what?", CODE)
    assert app.composer.text == ""


async def newline(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await pilot.press("a", "ctrl+j", "b", "shift+enter", "c", "alt+enter", "d")
    assert app.composer.text == "a\nb\nc\nd"


async def complete(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await pilot.press("/", "r", "e", "g", "tab")
    assert app.composer.text.startswith("/regen")


async def editor(app: LocalspecApp, pilot: Pilot[None]) -> None:
    app.composer.write("a question")
    await pilot.press("ctrl+g")
    assert app.composer.text == "a question, edited"


async def stop(app: LocalspecApp, pilot: Pilot[None]) -> None:
    hold(app, after=4)
    app.composer.write("long")
    await pilot.press("enter")
    await until(pilot, lambda: app.status_line.status.doing == "thinking")
    await pilot.press("escape")
    release(app)
    await rests(app, pilot)
    assert app.conductor.chat.conversation.turns[-1].stopped
    assert "stopped" in said(app)


async def regenerate(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await ask(app, pilot, "again?")
    first = app.transcript.last
    await pilot.press("ctrl+r")
    await rests(app, pilot)
    assert turns(app) == [("again?", CODE)]
    assert app.transcript.last is not first


async def edit(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await ask(app, pilot, "old")
    await pilot.press("alt+up")
    await until(pilot, lambda: isinstance(app.screen, EditQuestion))
    await pilot.press("e", "r", "enter")
    await rests(app, pilot)
    assert turns(app) == [("older", CODE)]


async def new(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await ask(app, pilot, "a")
    await ask(app, pilot, "/params")
    assert "draft model" in said(app)
    await pilot.press("ctrl+n")
    await rests(app, pilot)
    assert turns(app) == []
    assert said(app) == "a new conversation"


async def reload(app: LocalspecApp, pilot: Pilot[None]) -> None:
    opened = panel_scenarios.opener_of(app).opened
    assert len(opened) == 1
    await pilot.press("f5")
    await rests(app, pilot)
    assert len(opened) == 2
    assert app.status_line.status.info is not None


async def version_before(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await ask(app, pilot, "again?")
    await ask(app, pilot, "/regen")
    await pilot.press("alt+left")
    await rests(app, pilot)
    assert app.conductor.book is not None
    assert app.conductor.book.places() == ((1, 2),)


async def version_after(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await version_before(app, pilot)
    await pilot.press("alt+right")
    await rests(app, pilot)
    assert app.conductor.book is not None
    assert app.conductor.book.places() == ((2, 2),)


async def sessions(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await ask(app, pilot, "a question of mine")
    await pilot.press("ctrl+o")
    await until(pilot, lambda: isinstance(app.screen, SessionsScreen) and "a question of mine" in screen_text(app))
    await pilot.press("escape")
    await until(pilot, lambda: len(app.screen_stack) == 1)


async def copy(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await ask(app, pilot, "a")
    await pilot.press("alt+c")
    assert app.clipboard == CODE


async def copy_code(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await ask(app, pilot, "a")
    await pilot.press("ctrl+y")
    assert app.clipboard == "y = 2\n"
    await pilot.press("ctrl+y")
    assert app.clipboard == "x = 1\n"


async def find(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await ask(app, pilot, "needle")
    await ask(app, pilot, "hay")
    await pilot.press("ctrl+f", *"needle", "enter")
    assert isinstance(app.focused, Input)
    (found,) = app.transcript.query(".-found")
    assert found.parent is app.transcript.query(Turn).first()


async def thinking(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await ask(app, pilot, "a")
    assert "first this" not in screen_text(app)
    await pilot.press("ctrl+t")
    await until(pilot, lambda: "first this" in screen_text(app))
    await pilot.press("ctrl+t")
    await until(pilot, lambda: "first this" not in screen_text(app))


async def page_up(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await _long(app, pilot)
    await until(pilot, lambda: app.transcript.scroll_y == app.transcript.max_scroll_y > 0)
    await pilot.press("pageup")
    await pilot.pause()
    assert app.transcript.scroll_y < app.transcript.max_scroll_y


async def page_down(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await _long(app, pilot)
    await pilot.press("pageup", "pageup")
    await pilot.pause()
    up = app.transcript.scroll_y
    await pilot.press("pagedown")
    await pilot.pause()
    assert app.transcript.scroll_y > up


async def start(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await _long(app, pilot)
    assert app.transcript.scroll_y > 0
    await pilot.press("ctrl+home")
    await pilot.pause()
    assert app.transcript.scroll_y == 0


async def end(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await _long(app, pilot)
    await app.transcript.to_start()
    await pilot.pause()
    assert app.transcript.scroll_y == 0
    await pilot.press("ctrl+end")
    await pilot.pause()
    assert app.transcript.scroll_y == app.transcript.max_scroll_y > 0


async def _long(app: LocalspecApp, pilot: Pilot[None]) -> None:
    for number in range(6):
        await ask(app, pilot, f"{number}")


async def interrupt(app: LocalspecApp, pilot: Pilot[None]) -> None:
    app.composer.write("some text")
    app.composer.select_all()
    await pilot.press("ctrl+c")
    assert app.clipboard == "some text"
    app.composer.write("")
    await pilot.press("ctrl+c", "ctrl+c")
    assert app.return_code == 130


async def theme(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await pilot.press("f9")
    await until(pilot, lambda: "dracula" in screen_text(app))
    await pilot.press(*"nord")
    await until(pilot, lambda: "dracula" not in screen_text(app))
    await pilot.press("enter")
    await until(pilot, lambda: app.theme == "nord")


async def palette(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await pilot.press("ctrl+p", *"statistics")
    await until(pilot, lambda: "What guessing ahead does" in screen_text(app))
    await pilot.press("enter")
    await until(pilot, lambda: app.side.open == "statistics")


async def help_(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await pilot.press("f1")
    await until(pilot, lambda: isinstance(app.screen, Help))
    await pilot.press("escape")
    await until(pilot, lambda: len(app.screen_stack) == 1)


async def leave(app: LocalspecApp, pilot: Pilot[None]) -> None:
    await pilot.press("ctrl+q")
    assert app.return_code == 0


async def delete_or_leave(app: LocalspecApp, pilot: Pilot[None]) -> None:
    app.composer.write("ab")
    await pilot.press("home", "ctrl+d")
    assert app.composer.text == "b"
    await pilot.press("ctrl+d")
    assert app.composer.text == ""
    assert app.return_code is None
    await pilot.press("ctrl+d")
    assert app.return_code == 0


SCENARIOS: dict[str, Scenario] = {
    "send": send,
    "newline": newline,
    "complete": complete,
    "editor": editor,
    "stop": stop,
    "regenerate": regenerate,
    "edit": edit,
    "new": new,
    "reload": reload,
    "version-before": version_before,
    "version-after": version_after,
    "sessions": sessions,
    "copy": copy,
    "copy-code": copy_code,
    "find": find,
    "thinking": thinking,
    **panel_scenarios.SCENARIOS,
    **stepping_scenarios.SCENARIOS,
    "page-up": page_up,
    "page-down": page_down,
    "start": start,
    "end": end,
    "interrupt": interrupt,
    "theme": theme,
    "palette": palette,
    "help": help_,
    "leave": leave,
    "delete-or-leave": delete_or_leave,
}


@pytest.mark.parametrize("action", actions.ACTIONS, ids=lambda action: action.id)
@on_screen
async def test_every_action_does_what_it_says(
    action: actions.Action, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "editor"
    script.write_text('#!/bin/sh\nprintf "%s, edited" "$(cat "$1")" > "$1.new" && mv "$1.new" "$1"\n')
    os.chmod(script, 0o700)
    monkeypatch.setenv("VISUAL", str(script))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(LocalspecApp, "suspend", lambda app: nullcontext())
    async with running(says(*THOUGHT, CODE), store=Store(tmp_path / "sessions.db")) as (app, pilot):
        await rests(app, pilot)
        await SCENARIOS[action.id](app, pilot)


def test_every_action_has_a_scenario_and_no_scenario_is_left_over() -> None:
    assert set(SCENARIOS) == {action.id for action in actions.ACTIONS}


def test_keys_and_names_are_unique() -> None:
    keys = [(action.owner, key) for action in actions.ACTIONS for key in action.key.split(",")]
    assert len(keys) == len(set(keys))
    assert len({action.id for action in actions.ACTIONS}) == len(actions.ACTIONS)


@on_screen
async def test_the_palette_finds_words_of_the_help() -> None:
    async with running() as (app, pilot):
        await pilot.press("ctrl+p", *"Reject")
        await until(pilot, lambda: "Tokens" in screen_text(app))


@on_screen
async def test_the_palette_has_every_action_and_command() -> None:
    async with running() as (app, _pilot):
        titles = {command.title for command in app.get_system_commands(app.screen)}
    own = {action.title for action in actions.ACTIONS if action.owner == "app" and action.id != "palette"}
    assert own | {command.usage for command in COMMANDS} == titles


@pytest.mark.parametrize("width", [120, 40])
@on_screen
async def test_help_has_every_action_and_command(width: int) -> None:
    async with running(size=(width, 30)) as (app, pilot):
        await pilot.press("f1")
        await pilot.pause()
        shown = "\n".join(Help("", {}).lines(width))
        assert "You are writing" in screen_text(app)
    for action in actions.ACTIONS:
        assert action.help.split()[0] in shown
        assert action.key.split(",")[0] in shown
    assert all(command.usage in shown for command in COMMANDS)


@on_screen
async def test_a_key_can_be_another_one() -> None:
    async with running(keymap={"help": "f8", "send": "ctrl+s"}) as (app, pilot):
        await pilot.press("f8")
        await until(pilot, lambda: isinstance(app.screen, Help))
        await pilot.press("escape")
        app.composer.write("abc")
        await pilot.press("ctrl+s")
        await rests(app, pilot)
        assert len(turns(app)) == 1
        assert ("f8", "Keys and commands.") in actions.rows(actions.ACTIONS, app.keys)


def test_the_documentation_has_every_action() -> None:
    assert all(f"`{action.id}`" in actions.reference() for action in actions.ACTIONS)
