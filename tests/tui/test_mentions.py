"""Files that are mentioned: offered, weighed before they are sent, and named in the conversation."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from textual import events

from localspec.chat.store import Store
from localspec.tui.costs import Costs
from localspec.tui.dialogs import EditQuestion
from localspec.tui.turns import Turn
from tests.tui.support import (
    FakeOpener,
    ask,
    on_screen,
    rests,
    running,
    said,
    says,
    screen_text,
    until,
)

LONG = "".join(f"line {number}\n" for number in range(100))
BLOCK = f"long.txt:\n```\n{LONG}```\n\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where these tests are."""
    (tmp_path / "long.txt").write_text(LONG)
    (tmp_path / "media").mkdir()
    (tmp_path / "my\x1b[31mfile\u202e").write_text("x")
    (tmp_path / "my notes.md").write_text("milk")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@on_screen
async def test_names_are_offered_and_completed() -> None:
    async with running() as (app, pilot):
        await pilot.press(*"see @lo")
        await until(pilot, lambda: "@long.txt" in screen_text(app))
        await pilot.press("tab")
        assert app.composer.text == "see @long.txt"
        await pilot.press(*" @m")
        await until(pilot, lambda: r'@"my notes.md"' in screen_text(app))
        shown = screen_text(app)
        assert r"@my\x1b[31mfile\u202e" in shown
        assert "\x1b" not in shown
        await pilot.press("tab")
        assert app.composer.text in ('see @long.txt @"my notes.md"', "see @long.txt @media/")


@on_screen
async def test_what_stands_in_the_editor_does_not_steer_the_terminal() -> None:
    async with running() as (app, pilot):
        app.composer.write("@my\x1b[31mfile")
        await pilot.pause()
        assert "@my�[31mfile" in screen_text(app)
        assert app.composer.message == "@my\x1b[31mfile"


@on_screen
async def test_the_cost_is_counted_before_anything_is_sent() -> None:
    opener = FakeOpener(says("yes"))
    opener.gate.clear()
    async with running(opener=opener) as (app, pilot):
        app.composer.write("see @long.txt")
        await until(pilot, lambda: "@long.txt: 790 B (tokens are counted when" in screen_text(app))
        opener.gate.set()
        await rests(app, pilot)
        cost = app.conductor.chat.count(BLOCK)
        await pilot.press("!")
        await until(pilot, lambda: f"@long.txt: {cost:,} tokens" in screen_text(app))
        app.composer.write("see")
        await until(pilot, lambda: not app.query_one(Costs).display)


@on_screen
async def test_a_file_that_is_not_there_is_said_while_it_is_typed() -> None:
    async with running(says("yes")) as (app, pilot):
        app.composer.write("see @nope.txt")
        await until(pilot, lambda: "@nope.txt: no such file, it is sent as typed" in screen_text(app))
        app.composer.write("see @anna")
        await until(pilot, lambda: not app.query_one(Costs).display)


@on_screen
async def test_the_file_is_named_and_not_shown_and_the_whole_is_kept(tmp_path: Path) -> None:
    with closing(Store(tmp_path / "sessions.db")) as store:
        async with running(says("yes"), store=store) as (app, pilot):
            await rests(app, pilot)
            await ask(app, pilot, "see @long.txt")
            cost = app.conductor.chat.count(BLOCK)
            shown = screen_text(app)
            assert "see @long.txt" in shown
            assert "+ long.txt (100 lines, 790 B)" in shown
            assert f"long.txt: {cost:,} tokens" in said(app)
            assert "line 50" not in shown
            assert app.transcript.query_one(Turn).question == f"{BLOCK}see @long.txt"
            session = app.conductor.book
            assert session is not None
            (question, _) = store.tree(session.session.id).path(session.session.leaf)
            assert question.content == f"{BLOCK}see @long.txt"
            await pilot.press("alt+up")
            await until(pilot, lambda: isinstance(app.screen, EditQuestion))
            await until(pilot, lambda: "see @long.txt" in screen_text(app))
            assert "line 1" not in screen_text(app)
            await until(pilot, lambda: f"@long.txt: {cost:,} tokens" in screen_text(app))
            await pilot.press("?", "enter")
            await rests(app, pilot)
            assert app.conductor.chat.conversation.messages[0].content == f"{BLOCK}see @long.txt?"


@pytest.mark.parametrize("text", ["see @media", "see @./none", "see @./bin"])
@on_screen
async def test_what_cannot_go_along_is_said_and_given_back(text: str, folder: Path) -> None:
    (folder / "bin").write_bytes(b"\xff")
    async with running(says("yes")) as (app, pilot):
        await rests(app, pilot)
        await ask(app, pilot, text)
        assert "error: @" in said(app)
        assert app.composer.message == text
        assert app.conductor.chat.conversation.turns == ()


@on_screen
async def test_nothing_is_mentioned_in_a_paste() -> None:
    sheet = "@media print {\n}\n" * 10
    async with running(says("yes")) as (app, pilot):
        await rests(app, pilot)
        app.post_message(events.Paste(sheet))
        await until(pilot, lambda: "pasted 20 lines" in app.composer.text)
        await pilot.press("enter")
        await rests(app, pilot)
        assert app.conductor.chat.conversation.messages[0].content == sheet
