"""Panels beside a conversation."""

from __future__ import annotations

import pytest
from textual.events import Key

from localspec.backends.fake import FakeTarget, FakeVocab
from localspec.tui import app as screen
from localspec.tui.app import LocalspecApp
from localspec.tui.compare import CompareScreen
from localspec.tui.composer import Offers
from localspec.tui.conductor import Job
from localspec.tui.provenance import NOTHING, Provenance
from localspec.tui.stats import StatsPanel
from tests.cli.repl.support import engine
from tests.tui.support import (
    ask,
    hold,
    on_screen,
    release,
    rests,
    running,
    said,
    says,
    screen_text,
    target_of,
    told,
    until,
)

WORDS = tuple(f"w{number} " for number in range(30))


def joined(text: str) -> str:
    """Without line ends and frames."""
    return " ".join(text.replace("▏", " ").replace("│", " ").split())


def draws_guesses(app: LocalspecApp) -> None:
    """Answers of 60 tokens from now on."""
    app.conductor.chat.values |= {"n_predict": 60, "ignore_eos": True}


@on_screen
async def test_statistics_grow_while_an_answer_comes() -> None:
    async with running(says(*WORDS)) as (app, pilot):
        await rests(app, pilot)
        await pilot.press("f3")
        hold(app, after=8)
        app.composer.write("a")
        await pilot.press("enter")
        await until(pilot, lambda: " steps, 0 with guesses" in screen_text(app))
        assert "31 steps" not in screen_text(app)
        release(app)
        await rests(app, pilot)
        await until(pilot, lambda: "31 steps" in screen_text(app))


@on_screen
async def test_trees_are_asked_for_while_somebody_looks_at_them() -> None:
    async with running(engine(FakeTarget(FakeVocab(40), seed=5, spread=9.0, n_ctx=512)), size=(100, 60)) as (
        app,
        pilot,
    ):
        await rests(app, pilot)
        draws_guesses(app)
        await ask(app, pilot, "a")
        trace = app.conductor.chat.trace
        assert trace.last_draft is not None
        assert trace.tree(trace.last_draft) is None
        await pilot.press("f3")
        await until(pilot, lambda: "the tree was not asked for" in screen_text(app))
        await ask(app, pilot, "a")
        await until(pilot, lambda: "p of draft, target" in screen_text(app))
        await pilot.press("f4")
        assert app.conductor.chat.watchers
        await pilot.press("f4")
        assert not app.conductor.chat.watchers


@on_screen
async def test_tokens_of_an_answer_that_was_taken_back_are_gone() -> None:
    async with running(says(*WORDS)) as (app, pilot):
        await ask(app, pilot, "a")
        await pilot.press("f4")
        await until(pilot, lambda: "1 of 30" in screen_text(app))
        app.conductor.put(Job("command", "/undo"))
        await until(pilot, lambda: NOTHING[:28] in screen_text(app))


@pytest.mark.parametrize(("key", "shares"), [("f2", False), ("f3", True), ("f4", False)])
@on_screen
async def test_a_narrow_screen(key: str, shares: bool) -> None:
    async with running(says("answer"), size=(60, 24)) as (app, pilot):
        await rests(app, pilot)
        await pilot.press(key)
        await pilot.pause()
        assert app.side.region.width == 60
        assert app.side.region.bottom <= app.composer.region.y
        assert app.composer.region.bottom == 22  # above status and footer
        assert app.transcript.display is shares
        app.composer.focus()
        await ask(app, pilot, "a")
        await until(pilot, lambda: "answer" in screen_text(app))
        assert bool(app.side.open) is shares


@on_screen
async def test_lines_of_the_conversation_are_as_wide_as_there_is_room() -> None:
    async with running(size=(120, 30)) as (app, pilot):
        await pilot.pause()
        before = app.conductor.front.columns
        await pilot.press("f3")
        await until(pilot, lambda: app.conductor.front.columns == before - 46)
        await pilot.press("f3")
        await until(pilot, lambda: app.conductor.front.columns == before)


@on_screen
async def test_keys_in_a_panel_are_its_own() -> None:
    async with running(says(*WORDS), size=(100, 11)) as (app, pilot):
        await ask(app, pilot, "a")
        await pilot.press("f3")
        await until(pilot, lambda: "31 steps" in screen_text(app))
        await pilot.press("f6", "pagedown")
        panel = app.side.panel
        assert isinstance(panel, StatsPanel)
        await until(pilot, lambda: panel.scroll_y > 0)
        await pilot.press("f1")
        await until(pilot, lambda: "You are looking at what guessing ahead does" in joined(screen_text(app)))
        await pilot.press("escape")
        hold(app, after=0)
        app.conductor.put(Job("message", "b"))
        await pilot.press("f4", "escape")  # closes the panel; what runs goes on
        await until(pilot, lambda: not app.side.open)
        assert not app.conductor.stopping
        release(app)
        await rests(app, pilot)
        assert len(app.conductor.chat.conversation.turns) == 4


@on_screen
async def test_escape_closes_a_panel_from_the_composer_when_nothing_else_is_to_end() -> None:
    async with running(says(*WORDS)) as (app, pilot):
        await rests(app, pilot)
        hold(app, after=2)
        await pilot.press("f3")
        app.composer.write("a")
        await pilot.press("enter")
        await until(pilot, target_of(app).held.is_set)
        await pilot.press("escape")
        assert app.conductor.stopping
        release(app)
        await rests(app, pilot)
        assert app.side.open
        await pilot.press(*"/s", "tab", "escape")  # what tab offers goes first
        assert not app.query_one(Offers).display
        assert app.side.open
        await pilot.press("escape")
        await until(pilot, lambda: not app.side.open)
        assert app.composer.has_focus
        await pilot.press("f3", "f6", "escape")
        await until(pilot, lambda: not app.side.open)


@on_screen
async def test_lines_that_go_away_stand_at_the_top_and_not_longer_than_their_exchange() -> None:
    async with running(says(*WORDS), notifications=True) as (app, pilot):
        await rests(app, pilot)
        await pilot.press("alt+t")
        await until(pilot, lambda: "step mode" in screen_text(app))
        lines = screen_text(app).splitlines()
        assert any("step mode" in line for line in lines[:5])
        assert not any("step mode" in line for line in lines[5:])
        assert all(one.timeout == screen.GLANCE for one in app._notifications)
        app.composer.write("a")
        await pilot.press("enter")
        assert not told(app)
        await pilot.press("escape")
        await rests(app, pilot)


@on_screen
async def test_a_letter_with_alt_is_no_text_of_a_field() -> None:
    async with running() as (app, pilot):
        await rests(app, pilot)
        await pilot.press("f2")
        app.post_message(Key("alt+m", "m"))  # as terminals send it
        await until(pilot, lambda: "typical-p" in screen_text(app))
        assert "wrong" not in {name for row in app.query("Row") for name in row.classes}


@on_screen
async def test_a_panel_gets_the_keys_that_follow_the_one_that_opens_it() -> None:
    async with running(says(*WORDS)) as (app, pilot):
        await ask(app, pilot, "a")
        for key, letter in (("f4", None), ("d", "d"), ("f2", None), ("1", "1")):  # all at once
            app.post_message(Key(key, letter))
        await until(pilot, lambda: app.conductor.chat.values["n_predict"] == 1)
        assert app.composer.text == ""


@on_screen
async def test_another_panel_takes_the_place() -> None:
    async with running() as (app, pilot):
        await pilot.press("f3", "f4")
        assert isinstance(app.side.panel, Provenance)
        assert len(app.side.children) == 1


@on_screen
async def test_why_nothing_is_compared_is_said() -> None:
    async with running() as (app, pilot):
        await rests(app, pilot)
        await pilot.press("alt+a")
        await until(pilot, lambda: "has no question. Write a message first." in screen_text(app))
        await pilot.press("escape")
        await until(pilot, lambda: len(app.screen_stack) == 1)
        assert "error: this conversation has no question" in said(app)


@on_screen
async def test_a_comparison_can_be_stopped() -> None:
    async with running(says(*WORDS)) as (app, pilot):
        await ask(app, pilot, "a")
        hold(app, after=6)
        await pilot.press("alt+a")
        await until(pilot, lambda: "w1" in screen_text(app))
        await pilot.press("escape")
        assert app.conductor.stopping
        release(app)
        await until(pilot, lambda: "escape closes" in screen_text(app) and "stopped" in screen_text(app))
        await pilot.press("escape")
        await until(pilot, lambda: len(app.screen_stack) == 1)
        await ask(app, pilot, "b")
        assert len(app.conductor.chat.conversation.turns) == 4


@on_screen
async def test_nothing_is_compared_while_something_runs() -> None:
    async with running(says(*WORDS)) as (app, pilot):
        await rests(app, pilot)
        hold(app, after=2)
        app.composer.write("a")
        await pilot.press("enter", "alt+a")
        assert "something runs" in told(app)
        assert not isinstance(app.screen, CompareScreen)
        release(app)
        await rests(app, pilot)
