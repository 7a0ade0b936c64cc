"""What is typed and not sent, and files of sessions that cannot be used: nothing is lost."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from localspec.chat.store import Store
from localspec.chat.store.database import Database
from localspec.chat.store.schema import MIGRATIONS
from localspec.tui.sessions import SessionsScreen
from tests.chat.stores import told
from tests.tui.support import ask, hold, on_screen, release, rests, running, said, says, screen_text, turns, until

TEXT = "so it is"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "data" / "sessions.db")


def draft(store: Store) -> str:
    """What is kept with the only session."""
    return next((one.draft for one in store.sessions()), "")


@on_screen
async def test_what_is_typed_is_kept_and_gone_when_it_is_sent(store: Store) -> None:
    async with running(says(TEXT), store=store) as (app, pilot):
        await rests(app, pilot)
        await pilot.press(*"why")
        await until(pilot, lambda: draft(store) == "why")
        await pilot.press("enter")
        await rests(app, pilot)
        await until(pilot, lambda: draft(store) == "")
        assert turns(app) == [("why", TEXT)]
        await pilot.press(*"/stats")
        await rests(app, pilot)
        assert draft(store) == ""  # a command is no message


@on_screen
async def test_what_waits_is_not_sent_yet(store: Store) -> None:
    async with running(says(TEXT), store=store) as (app, pilot):
        await rests(app, pilot)
        hold(app)
        for text in ("first", "second", "/stats"):
            app.composer.write(text)
            await pilot.press("enter")
        app.composer.write("third")
        await until(pilot, lambda: draft(store) == "second\n\nthird")
        release(app)
        await rests(app, pilot)
        await until(pilot, lambda: draft(store) == "third")


@on_screen
async def test_every_conversation_has_its_own(store: Store) -> None:
    garden = told(store, "garden", "why?", "so")
    store.set_draft(garden.id, "about roses")
    async with running(says(TEXT), store=store) as (app, pilot):
        await ask(app, pilot, "here")
        app.composer.write("half a thought")
        await pilot.press("ctrl+o")
        await until(pilot, lambda: isinstance(app.screen, SessionsScreen) and "garden" in screen_text(app))
        await pilot.press("down", "enter")
        await until(pilot, lambda: app.composer.text == "about roses")
        await until(pilot, lambda: store.find("here").draft == "half a thought")
        app.composer.write("about tulips")
        await pilot.press("ctrl+n")
        await rests(app, pilot)
        assert app.composer.text == "about tulips"  # goes along to a new one
        await until(pilot, lambda: store.find("garden").draft == "")
    assert store.find("here").draft == "half a thought"


@on_screen
async def test_a_session_that_is_taken_up_brings_it_back(store: Store) -> None:
    garden = told(store, "garden", "why?", "so")
    store.set_draft(garden.id, "[bold]and\nroses?")
    async with running(says(TEXT), store=store, session=garden) as (app, pilot):
        await pilot.press("x")
        await until(pilot, lambda: app.composer.text == "[bold]and\nroses?\n\nx")
        await pilot.press("ctrl+q")
    assert store.find("garden").draft == "[bold]and\nroses?\n\nx"


@on_screen
async def test_a_few_words_alone_make_no_session(store: Store) -> None:
    async with running(store=store) as (app, pilot):
        await rests(app, pilot)
        await pilot.press(*"hm")
        await until(pilot, lambda: draft(store) == "hm")
        await pilot.press("ctrl+q")
    assert store.sessions() == ()


@on_screen
async def test_two_screens_on_one_conversation_lose_nothing(store: Store) -> None:
    garden = told(store, "garden", "why?", "so")
    with closing(Store(store.path)) as other:
        async with (
            running(says(TEXT), store=store, session=garden) as (one, first),
            running(says(TEXT), store=other, session=garden) as (two, second),
        ):
            await rests(one, first)
            await rests(two, second)
            await ask(one, first, "here")
            await ask(two, second, "there")
            await ask(one, first, "here again")
            two.composer.write("half a thought")
            await until(second, lambda: store.find("garden").draft == "half a thought")
            assert [question for question, _ in turns(one)] == ["why?", "here", "here again"]
            assert [question for question, _ in turns(two)] == ["why?", "there"]
    found = [entry.content for entry in store.tree(garden.id)]
    assert found == ["why?", "so", "here", TEXT, "there", TEXT, "here again", TEXT]
    assert store.find("garden").draft == "half a thought"


# Files that cannot be used


@on_screen
async def test_a_full_disk_is_said_once_and_all_is_saved_when_there_is_room(store: Store) -> None:
    async with running(says(TEXT * 2000), store=store) as (app, pilot):
        await ask(app, pilot, "before")
        (pages,) = store._database.rows("PRAGMA page_count")[0]
        store._database.rows(f"PRAGMA max_page_count = {pages + 2}")
        await ask(app, pilot, "while it is full")
        await ask(app, pilot, "and again")
        lines = [line for line in said(app).splitlines() if "full" in line]
        assert len(lines) == 1
        assert "is kept in memory" in lines[0]
        app.composer.write("half a thought")
        assert len(turns(app)) == 3
        store._database.rows("PRAGMA max_page_count = 1000000")
        await until(pilot, lambda: "saved again; nothing is missing" in said(app))
    session = store.find("before")
    assert [one.content for one in store.tree(session.id).path(session.leaf)][::2] == [
        "before",
        "while it is full",
        "and again",
    ]


@on_screen
async def test_a_damaged_file_is_moved_aside(store: Store) -> None:
    store.path.parent.mkdir(parents=True)
    store.path.write_bytes(b"no database" * 500)
    async with running(says(TEXT), store=store) as (app, pilot):
        await ask(app, pilot, "why?")
        assert said(app).count("was damaged: it was moved to") == 1
        assert turns(app) == [("why?", TEXT)]
    assert store.find("why?").questions == 1


def nothing(path: Path) -> None:
    path.touch()


def half(path: Path) -> None:
    other = Store(path.with_name("other.db"))
    told(other, "garden", "why?", "so")
    other.close()
    path.write_bytes(other.path.read_bytes()[:6000])


def noise(path: Path) -> None:
    path.write_bytes(random.Random(1).randbytes(9000))


@pytest.mark.parametrize(("make", "says_so"), [(nothing, 0), (half, 1), (noise, 1)])
@on_screen
async def test_whatever_the_file_holds_the_conversation_is_saved(
    store: Store, make: Callable[[Path], None], says_so: int
) -> None:
    store.path.parent.mkdir(parents=True)
    make(store.path)
    async with running(says(TEXT), store=store) as (app, pilot):
        await ask(app, pilot, "why?")
        await pilot.press(*"hm")
        await until(pilot, lambda: store.find("why?").draft == "hm")
        await until(pilot, lambda: said(app).count("was damaged: it was moved to") == says_so)
    assert store.find("why?").questions == 1


def folder(path: Path) -> None:
    path.mkdir(parents=True)


def file(path: Path) -> None:
    path.parent.touch()


@pytest.mark.parametrize("make", [folder, file])
@on_screen
async def test_a_place_that_can_be_no_file_costs_nothing(store: Store, make: Callable[[Path], None]) -> None:
    make(store.path)
    async with running(says(TEXT), store=store) as (app, pilot):
        await ask(app, pilot, "why?")
        await ask(app, pilot, "and?")
        app.composer.write("half a thought")
        await until(pilot, lambda: said(app).count("is kept in memory") == 1)  # told by whoever came first
        assert [question for question, _ in turns(app)] == ["why?", "and?"]
        await pilot.press("ctrl+o")
        await until(pilot, lambda: "Check the folder" in screen_text(app))
        await pilot.press("escape")
        if store.path.is_dir():
            store.path.rmdir()
        else:
            store.path.parent.unlink()
        await until(pilot, lambda: len(app.screen_stack) == 1)
        await pilot.press("!")
        await until(pilot, lambda: "saved again; nothing is missing" in said(app))
    session = store.find("why?")
    assert (session.questions, session.draft) == (2, "half a thought!")


@on_screen
async def test_an_older_file_is_brought_to_the_new_format(store: Store) -> None:
    told(store, "garden", "why?", "so")
    store.close()
    store._database = Database(store.path, (*MIGRATIONS, lambda connection: None))
    async with running(says(TEXT), store=store, session=store.find("garden")) as (app, pilot):
        await rests(app, pilot)
        await until(pilot, lambda: said(app).count("brought to a new format; the file as it was is") == 1)
        assert turns(app) == [("why?", "so")]


@on_screen
async def test_a_newer_file_is_left_alone_and_the_conversation_kept_in_memory(store: Store) -> None:
    told(store, "garden", "why?", "so")
    store.close()
    with closing(sqlite3.connect(store.path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    async with running(says(TEXT), store=store) as (app, pilot):
        await ask(app, pilot, "here")
        await ask(app, pilot, "more")
        assert said(app).count("was written by a newer localspec") == 1
        assert turns(app) == [("here", TEXT), ("more", TEXT)]
        await pilot.press("ctrl+o")
        await until(pilot, lambda: "newer localspec" in screen_text(app))
        await pilot.press("escape")
        await until(pilot, lambda: len(app.screen_stack) == 1)
        with closing(sqlite3.connect(store.path)) as connection:
            connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        await ask(app, pilot, "again")
    assert store.find("here").questions == 3
