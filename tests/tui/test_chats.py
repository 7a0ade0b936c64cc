"""Versions of an exchange, and saved conversations on the screen."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, OptionList

from localspec.chat.store import Session, Store, new_id
from localspec.talk.session_list import listed
from localspec.tui.app import LocalspecApp
from localspec.tui.sessions import MOST, SessionsScreen
from tests.chat.stores import told
from tests.tui.support import (
    FakeOpener,
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

PIECES = ("one ", "two ", "three ", "four ", "five ", "six")
TEXT = "".join(PIECES)
#: Answers differ by the seed.
LOOSE = {"temp": 0.8, "seed": 3}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "data" / "sessions.db")


async def short(app: LocalspecApp, pilot: Pilot[None]) -> None:
    """Answers have four tokens."""
    await rests(app, pilot)
    app.conductor.chat.values.update(n_predict=4, ignore_eos=True)


async def press(app: LocalspecApp, pilot: Pilot[None], *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        await rests(app, pilot)


def answers(app: LocalspecApp) -> list[str]:
    return [answer for _, answer in turns(app)]


def notice(app: LocalspecApp) -> str:
    """The newest line that goes away by itself."""
    return [one.message for one in app._notifications][-1]


# Versions


@on_screen
async def test_versions_are_walked_and_counted(store: Store) -> None:
    async with running(store=store, options=LOOSE) as (app, pilot):
        await short(app, pilot)
        await ask(app, pilot, "first")
        await ask(app, pilot, "second")
        await press(app, pilot, "ctrl+r", "ctrl+r")
        third = answers(app)
        assert "3/3 · " in said(app)
        await press(app, pilot, "alt+left")
        assert notice(app) == "version 2 of 3"
        assert "2/3" in screen_text(app)
        assert answers(app)[0] == third[0]
        assert answers(app)[1] != third[1]
        await press(app, pilot, "alt+left", "alt+left", "alt+left")
        assert notice(app) == "version 1 of 3"
        await press(app, pilot, "alt+right", "alt+right")
        assert answers(app) == third
        assert [turn.message.content for turn in app.conductor.chat.conversation.turns][1::2] == third


@on_screen
async def test_what_was_taken_back_comes_again(store: Store) -> None:
    async with running(says(*PIECES), store=store) as (app, pilot):
        await press(app, pilot, "alt+left")
        assert notice(app).startswith("nothing was asked in this conversation")
        await ask(app, pilot, "first")
        await press(app, pilot, "alt+left")
        assert notice(app).startswith("there is one version")
        await ask(app, pilot, "/undo")
        assert turns(app) == []
        await press(app, pilot, "alt+left")
        assert turns(app) == [("first", TEXT)]


@on_screen
async def test_a_walk_ends_what_comes_and_keeps_it(store: Store) -> None:
    async with running(says(*PIECES), store=store) as (app, pilot):
        await ask(app, pilot, "count")
        hold(app, after=3)
        await pilot.press("ctrl+r")
        await until(pilot, lambda: app.status_line.status.doing == "answering")
        await pilot.press("alt+left")
        release(app)
        await rests(app, pilot)
        assert turns(app) == [("count", TEXT)]
        assert "1/2" in screen_text(app)
        await press(app, pilot, "alt+right")
        assert app.conductor.chat.conversation.turns[-1].stopped
        assert "stopped" in said(app)


@on_screen
async def test_a_question_without_an_answer_is_walked_from_and_not_to(store: Store) -> None:
    async with running(says(*PIECES), store=store) as (app, pilot):
        await ask(app, pilot, "first")
        await ask(app, pilot, "/undo")
        hold(app)
        app.composer.write("second")
        await pilot.press("enter")
        await until(pilot, lambda: bool(turns(app)))
        await pilot.press("escape")
        release(app)
        await rests(app, pilot)
        await press(app, pilot, "alt+left")
        assert turns(app)[-1] == ("first", TEXT)
        assert notice(app) == "version 1 of 2"  # the other one waits until it is left
        await press(app, pilot, "alt+right")
        assert notice(app) == "there is one version of the last exchange; /regen and /edit make others"


@on_screen
async def test_files_that_wait_stay(store: Store) -> None:
    async with running(says(*PIECES), store=store) as (app, pilot):
        await ask(app, pilot, "first")
        await press(app, pilot, "ctrl+r")
        app.conductor.chat.attach([("notes", "x")])
        await press(app, pilot, "alt+left")
        assert [one.name for one in app.conductor.chat.attachments] == ["notes"]


@on_screen
async def test_an_earlier_answer_anew_loses_nothing(store: Store) -> None:
    async with running(store=store, options=LOOSE) as (app, pilot):
        await short(app, pilot)
        for question in ("first", "second", "third"):
            await ask(app, pilot, question)
        before = turns(app)
        await ask(app, pilot, "/regen 3")
        assert [question for question, _ in turns(app)] == ["first"]
        assert answers(app)[0] != before[0][1]
        assert "2/2" in screen_text(app)
        await press(app, pilot, "alt+left")
        assert turns(app) == before
        await ask(app, pilot, "/regen 4")
        assert "4 is too far back: 3 were asked" in said(app)
        assert turns(app) == before


# The list


async def list_of(app: LocalspecApp, pilot: Pilot[None], holds: str) -> SessionsScreen:
    await pilot.press("ctrl+o")
    await until(pilot, lambda: isinstance(app.screen, SessionsScreen) and holds in screen_text(app))
    assert isinstance(app.screen, SessionsScreen)
    return app.screen


@pytest.mark.parametrize("size", [(100, 30), (40, 20)])
@on_screen
async def test_the_list_opens_what_is_chosen(store: Store, size: tuple[int, int]) -> None:
    told(store, "garden [bold]", "why?", "so")
    told(store, "attic", "x", "y", "z", "w")
    store.pin(told(store, "pinned one", "p").id)
    async with running(says(*PIECES), store=store, size=size) as (app, pilot):
        await ask(app, pilot, "here")
        await list_of(app, pilot, "garden [bold]")
        lines = [line for line in screen_text(app).splitlines() if "│" in line]
        found = [name for line in lines for name in ("pinned one", "here", "attic", "garden") if name in line]
        assert found == ["pinned one", "here", "attic", "garden"]
        assert "2 questions" in screen_text(app)
        assert "escape leaves" in " ".join(screen_text(app).replace("│", " ").split())
        await pilot.press("down", "down", "down", "enter")
        await rests(app, pilot)
        assert turns(app) == [("why?", "so")]
        assert "going on with garden [bold]: 1 exchange" in said(app)
    assert store.find("here").questions == 1


@on_screen
async def test_typing_finds_text_in_all_of_them(store: Store) -> None:
    told(store, "fruit", "an [apple] a day", "Apples, \x1b[31mred")
    told(store, "apple pie", "x")
    told(store, "attic", "y")
    async with running(store=store) as (app, pilot):
        await list_of(app, pilot, "3 saved")
        await pilot.press(*"appl")
        await until(pilot, lambda: "2 found" in screen_text(app))
        shown = screen_text(app)
        assert "[appl]e pie" in shown
        assert "an [[appl]e] a day" in shown
        assert "\x1b" not in shown
        assert "attic" not in shown
        await pilot.press("x", "x")
        await until(pilot, lambda: "nothing is found" in screen_text(app))


@on_screen
async def test_sessions_are_renamed_pinned_deleted_and_brought_back(store: Store) -> None:
    told(store, "garden", "x")
    told(store, "attic", "y")
    async with running(store=store) as (app, pilot):
        screen = await list_of(app, pilot, "2 saved")
        await pilot.press("down", "ctrl+r")
        assert screen.query_one("#title", Input).value == "garden"
        await pilot.press(*"er", "enter")
        await until(pilot, lambda: "it is now called gardener" in screen_text(app))
        await pilot.press("ctrl+r", "x", "home", "shift+end", "ctrl+x")
        assert screen.query_one("#title", Input).value == ""  # cut: no session is deleted
        await pilot.press("escape")
        assert screen.query_one("#wanted").has_focus
        await pilot.press("ctrl+t")
        await until(pilot, lambda: "pinned · " in screen_text(app))
        assert [one.title for one in store.sessions()] == ["gardener", "attic"]
        await pilot.press("ctrl+x")
        await until(pilot, lambda: "deleted: gardener; ctrl+z brings it back" in screen_text(app))
        assert [one.title for one in store.sessions()] == ["attic"]
        await pilot.press("ctrl+z")
        await until(pilot, lambda: "it is back: gardener" in screen_text(app))
        await pilot.press("ctrl+z")
        await until(pilot, lambda: "no conversation is deleted" in screen_text(app))
        await pilot.press("up", "ctrl+t")
        await until(pilot, lambda: "no longer pinned" in screen_text(app))


@on_screen
async def test_the_open_one_is_renamed_and_deleted_too(store: Store) -> None:
    async with running(says(*PIECES), store=store) as (app, pilot):
        await ask(app, pilot, "mine")
        await list_of(app, pilot, "open · ")
        await pilot.press("ctrl+r", "!", "enter")
        await until(pilot, lambda: "it is now called mine!" in screen_text(app))
        assert app.conductor.book is not None
        assert app.conductor.book.session.title == "mine!"
        await pilot.press("ctrl+x")
        await rests(app, pilot)
        assert turns(app) == []
        assert "deleted: mine!" in said(app)
        await list_of(app, pilot, "no conversation is saved yet")
        await pilot.press("ctrl+z")
        await until(pilot, lambda: "it is back: mine!" in screen_text(app))


@on_screen
async def test_thousands_are_listed_in_part(store: Store) -> None:
    store.open()
    with sqlite3.connect(store.path) as connection:
        for number in range(3000):
            at = f"2026-01-01T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}+00:00"
            connection.execute(
                "INSERT INTO sessions (id, title, created, updated) VALUES (?, ?, ?, ?)",
                (f"s{number}", f"title {number}", at, at),
            )
            connection.execute(
                "INSERT INTO messages (id, session, role, content, created) VALUES (?, ?, 'user', ?, ?)",
                (f"m{number}", f"s{number}", f"question {number}", at),
            )
    async with running(store=store) as (app, pilot):
        screen = await list_of(app, pilot, f"the first {MOST}; typing finds the others")
        assert screen.query_one(OptionList).option_count == MOST
        assert "title 2999" in screen_text(app)
        await pilot.press(*"question 7")
        await until(pilot, lambda: "question [7]" in screen_text(app).replace("[question] ", "question "))
        await pilot.press("backspace", *"1234", "enter")  # what enter opens is what was typed, found or not yet
        await until(pilot, lambda: "going on with title 1234:" in said(app))


def test_places_of_one_session_stand_together(store: Store) -> None:
    one = told(store, "t", *[f"word {number}" for number in range(9)])
    told(store, "u", "a word")
    found = listed(store, "word", 10)
    assert {row.session.id for row in found} == {one.id, store.find("u").id}
    assert [len(row.places) for row in found if row.session.id == one.id] == [3]
    store.begin(Session(new_id(), draft="half a\nthought"))
    assert next(row.title.text for row in listed(store, "", 10)) == "(unsent) half a thought"


@on_screen
async def test_without_a_store_there_is_no_list() -> None:
    async with running() as (app, pilot):
        await press(app, pilot, "ctrl+o")
        assert "is not saved" in notice(app)
        await press(app, pilot, "alt+left")
        assert notice(app).startswith("this conversation is not saved")


# Going on with one


@on_screen
async def test_a_saved_conversation_is_shown_before_the_model_is_loaded(store: Store) -> None:
    session = told(store, "garden", "why?", "so")
    opener = FakeOpener(says(*PIECES))
    opener.gate.clear()
    async with running(opener=opener, store=store, session=session) as (app, pilot):
        await until(pilot, lambda: turns(app) == [("why?", "so")] and "loading" in screen_text(app))
        assert "going on with garden: 1 exchange" in said(app)
        opener.gate.set()
        await ask(app, pilot, "more")
        assert turns(app) == [("why?", "so"), ("more", TEXT)]
    assert store.find("garden").questions == 2


@pytest.mark.parametrize("form", ["html", "md", "json"])
@on_screen
async def test_a_conversation_is_exported_from_the_screen(store: Store, tmp_path: Path, form: str) -> None:
    path = tmp_path / f"evening.{form}"
    async with running(says(*PIECES), store=store) as (app, pilot):
        await ask(app, pilot, "why <b>?")
        await ask(app, pilot, f"/export {path}")
        assert "wrote 1 exchange" in said(app)
    assert TEXT in path.read_text()
