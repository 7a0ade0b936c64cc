"""Asking, streaming, stopping, queueing; errors and dead engines; what is said beside turns."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual import events

from localspec.chat.conversation import Conversation
from localspec.errors import EngineDied, ModelLoadError
from localspec.talk.history import History
from localspec.tui.dialogs import EditQuestion
from localspec.tui.transcript import MOST_TURNS, Earlier, Empty
from localspec.tui.turns import Section, Turn
from localspec.types import Message
from tests.cli.repl.support import engine, messages
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


@on_screen
async def test_the_first_frame_is_there_before_the_model() -> None:
    opener = FakeOpener(says(*PIECES))
    opener.gate.clear()
    async with running(opener=opener) as (app, pilot):
        await until(pilot, lambda: "loading fake.gguf … 50 %" in screen_text(app))
        assert app.transcript.query(Empty)
        await pilot.press(*"hello", "enter")
        await until(pilot, lambda: "waits: hello" in screen_text(app))
        opener.gate.set()
        await rests(app, pilot)
        assert turns(app) == [("hello", TEXT)]
        assert "waits" not in screen_text(app)


@on_screen
async def test_an_answer_streams_and_ends_with_a_line_about_it() -> None:
    async with running(says(*PIECES)) as (app, pilot):
        await rests(app, pilot)
        hold(app, after=3)
        app.composer.write("count")
        await pilot.press("enter")
        await until(pilot, lambda: "two" in screen_text(app))
        assert "six" not in screen_text(app)
        assert app.status_line.status.doing == "answering"
        release(app)
        await rests(app, pilot)
        assert turns(app) == [("count", TEXT)]
        assert "6 tok" in said(app)
        assert not app.transcript.query(Empty)


@on_screen
async def test_a_stopped_answer_keeps_what_was_shown() -> None:
    async with running(says(*PIECES)) as (app, pilot):
        await rests(app, pilot)
        hold(app, after=3)
        app.composer.write("count")
        await pilot.press("enter")
        await until(pilot, lambda: "two" in screen_text(app))
        await pilot.press("escape")
        release(app)
        await rests(app, pilot)
        ((_, answer),) = turns(app)
        assert TEXT.startswith(answer)
        assert answer != TEXT
        assert [turn.stopped for turn in app.conductor.chat.conversation.turns] == [False, True]
        assert app.conductor.chat.conversation.last_answer() == answer
        assert "stopped" in said(app)


@on_screen
async def test_one_that_is_stopped_at_once_can_be_asked_again() -> None:
    async with running(says(*PIECES), size=(60, 24), keymap={"regenerate": "f9,ctrl+r"}) as (app, pilot):
        await rests(app, pilot)
        hold(app)
        app.composer.write("count")
        await pilot.press("enter")
        await until(pilot, lambda: bool(app.transcript.query(Turn)))
        await pilot.press("escape")
        release(app)
        await rests(app, pilot)
        shown = " ".join(screen_text(app).split())  # on two lines, and whole
        assert "stopped before the answer began; the question was left out: f9 asks it again" in shown
        assert app.conductor.chat.conversation.turns == ()
        await pilot.press("ctrl+r")
        await rests(app, pilot)
        assert turns(app) == [("count", TEXT)]


@on_screen
async def test_messages_wait_their_turn() -> None:
    async with running(says(*PIECES)) as (app, pilot):
        await rests(app, pilot)
        hold(app)
        for text in ("first", "second", "/stats"):
            app.composer.write(text)
            await pilot.press("enter")
        await until(pilot, lambda: "waits: second" in screen_text(app) and "waits: /stats" in screen_text(app))
        release(app)
        await rests(app, pilot)
        assert [question for question, _ in turns(app)] == ["first", "second"]
        assert "last answer" in said(app)


@on_screen
async def test_stopping_gives_back_what_waits() -> None:
    async with running(says(*PIECES)) as (app, pilot):
        await rests(app, pilot)
        hold(app)
        for text in ("first", "second", "third"):
            app.composer.write(text)
            await pilot.press("enter")
        await until(pilot, lambda: "waits: third" in screen_text(app))
        await pilot.press("escape")
        release(app)
        await rests(app, pilot)
        assert app.composer.text == "second\n\nthird"


@on_screen
async def test_enter_does_not_overtake_what_was_typed_before_it() -> None:
    async with running(says(*PIECES)) as (app, pilot):
        await rests(app, pilot)
        for key in [*"abcdefghij", "enter", *"kl"]:  # all at once, as a fast line brings it
            app.post_message(events.Key(key, key if len(key) == 1 else "\r"))
        await until(pilot, lambda: turns(app) == [("abcdefghij", TEXT)])
        assert app.composer.text == "kl"


@on_screen
async def test_an_edited_question_takes_the_place_of_the_old() -> None:
    async with running(says(*PIECES)) as (app, pilot):
        await ask(app, pilot, "first")
        await ask(app, pilot, "secnd")
        app.composer.write("/edit")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, EditQuestion))
        await pilot.press(*["backspace"] * 2, *"ond", "enter")
        await rests(app, pilot)
        assert turns(app) == [("first", TEXT), ("second", TEXT)]
        assert len(app.conductor.chat.conversation.turns) == 4


@on_screen
async def test_an_edit_that_is_left_changes_nothing() -> None:
    async with running(says(*PIECES)) as (app, pilot):
        await ask(app, pilot, "first")
        await pilot.press("alt+up")
        await until(pilot, lambda: isinstance(app.screen, EditQuestion))
        await pilot.press("x", "escape")
        await rests(app, pilot)
        assert turns(app) == [("first", TEXT)]
        assert "nothing was changed" in said(app)


@on_screen
async def test_an_unknown_command_never_goes_to_the_model() -> None:
    async with running(says(*PIECES)) as (app, pilot):
        await ask(app, pilot, "/regne")
        assert turns(app) == []
        assert "Did you mean /regen?" in said(app)
        await ask(app, pilot, "//etc is a folder")
        assert turns(app) == [("/etc is a folder", TEXT)]


@on_screen
async def test_commands_change_what_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "evening.json"
    async with running(says(*PIECES)) as (app, pilot):
        await ask(app, pilot, "first")
        await ask(app, pilot, "second")
        await ask(app, pilot, f"/save {path}")
        await ask(app, pilot, "/undo")
        assert turns(app) == [("first", TEXT)]
        await ask(app, pilot, "/clear")
        assert turns(app) == [("first", TEXT)]  # saved nowhere: it stays to be read
        assert app.conductor.chat.conversation.turns == ()
        await ask(app, pilot, "/clear")
        await ask(app, pilot, "third")
        assert turns(app) == [("first", TEXT), ("third", TEXT)]
        await ask(app, pilot, "/undo")
        assert turns(app) == [("first", TEXT)]
        await ask(app, pilot, f"/load {path}")
        assert turns(app) == [("first", TEXT), ("second", TEXT)]
        await ask(app, pilot, "/copy")
        assert app.clipboard == TEXT


@on_screen
async def test_exit_leaves() -> None:
    async with running(says(*PIECES)) as (app, pilot):
        app.composer.write("/exit")
        await pilot.press("enter")
        await until(pilot, lambda: app.return_code is not None)
        assert app.return_code == 0


@on_screen
async def test_a_model_that_does_not_load_leaves_a_screen_that_works() -> None:
    opener = FakeOpener(ModelLoadError("fake.gguf is damaged", hint="Download it again."), says(*PIECES))
    async with running(opener=opener) as (app, pilot):
        await rests(app, pilot)
        assert "error: fake.gguf is damaged. Download it again." in said(app)
        assert "no model: F5 loads it, F7 another" in screen_text(app)
        await pilot.press("f5")
        await rests(app, pilot)
        await ask(app, pilot, "hello")
        assert turns(app) == [("hello", TEXT)]


@on_screen
async def test_a_message_that_cannot_be_asked_comes_back() -> None:
    async with running(ModelLoadError("fake.gguf is damaged", hint="Download it again.")) as (app, pilot):
        await rests(app, pilot)
        await ask(app, pilot, "a long question")
        assert app.composer.text == "a long question"
        assert turns(app) == []


@on_screen
async def test_an_engine_that_dies_is_replaced_by_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    dying = says(*PIECES)
    async with running(opener=FakeOpener(dying, says(*PIECES))) as (app, pilot):
        await ask(app, pilot, "first")

        def die(*_: object) -> None:
            raise EngineDied("the engine process was killed by SIGILL", hint="Rebuild it.")

        monkeypatch.setattr(dying, "submit", die)
        await ask(app, pilot, "second")
        assert turns(app) == [("first", TEXT)]
        assert "killed by SIGILL" in said(app)
        assert app.composer.text == "second"
        assert "no model: F5 loads it, F7 another" in screen_text(app)
        await pilot.press("f5")
        await rests(app, pilot)
        await pilot.press("enter")
        await rests(app, pilot)
        assert turns(app) == [("first", TEXT), ("second", TEXT)]


@on_screen
async def test_model_text_is_neither_markup_nor_control() -> None:
    async with running(says("[red]a[/red] ", "<b>bold</b> ", "\x1b[31m", "[/b] ", "\x07end")) as (app, pilot):
        await ask(app, pilot, "[bold]me[/bold] \x1b[2J")
        shown = screen_text(app)
        assert "[red]a[/red] <b>bold</b> �[31m[/b] �end" in shown
        assert "[bold]me[/bold] �[2J" in shown
        assert "\x1b" not in shown


@on_screen
async def test_typing_streaming_and_resizing_at_once() -> None:
    pieces = [f"word{number} " for number in range(300)]
    async with running(says(*pieces)) as (app, pilot):
        await rests(app, pilot)
        app.composer.write("go")
        await pilot.press("enter")
        for number, key in enumerate("typed while it comes"):
            await pilot.press("space" if key == " " else key)
            await pilot.resize_terminal(40 + 8 * (number % 10), 12 + number)
        await rests(app, pilot)
        assert turns(app) == [("go", "".join(pieces))]
        assert app.composer.text == "typed while it comes"
        assert "word299" in screen_text(app)


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 20)])
@on_screen
async def test_it_fits(size: tuple[int, int]) -> None:
    async with running(says("A *short* answer\n\n", "```py\nx = 1\n```\n"), size=size) as (app, pilot):
        await rests(app, pilot)
        assert "F1 lists keys" in screen_text(app)
        await ask(app, pilot, "a question that is longer than forty columns are wide")
        shown = screen_text(app)
        assert "A short answer" in shown
        assert "x = 1" in shown
        assert "ready" in shown
        assert all(len(line) <= size[0] for line in shown.splitlines())


@on_screen
async def test_only_the_end_of_a_long_conversation_is_shown_at_first() -> None:
    past = [Message(("user", "assistant")[i % 2], f"text {i}") for i in range(200)]
    async with running(conversation=Conversation(None, past)) as (app, pilot):
        await rests(app, pilot)
        assert len(turns(app)) == MOST_TURNS
        assert turns(app)[-1] == ("text 198", "text 199")
        await pilot.press("ctrl+home")
        await until(pilot, lambda: len(turns(app)) == 2 * MOST_TURNS)
        assert app.transcript.query(Earlier)
        await ask(app, pilot, "/undo 95")
        assert turns(app) == [(f"text {2 * i}", f"text {2 * i + 1}") for i in range(5)]


@on_screen
async def test_a_conversation_that_was_there_is_shown() -> None:
    conversation = Conversation(None, messages("a", "b"))
    async with running(engine(), conversation=conversation) as (app, pilot):
        await rests(app, pilot)
        assert turns(app) == [("a", "b")]


@on_screen
async def test_a_long_answer_is_cut_into_sections_without_loss() -> None:
    lines = [
        f"line {number} of a long answer with some words in it\n" + ("\n" if number % 4 == 0 else "")
        for number in range(300)
    ]
    async with running(says(*lines)) as (app, pilot):
        await ask(app, pilot, "go")
        parts = app.transcript.query(Section)
        assert len(parts) > 2
        assert "".join(part.text for part in parts) == "".join(lines)


@on_screen
async def test_what_is_far_from_the_screen_rests_and_wakes_where_one_scrolls() -> None:
    lines = [f"line {number} of a long answer\n\n" for number in range(800)]
    async with running(says(*lines)) as (app, pilot):
        await ask(app, pilot, "go")
        height = app.transcript.virtual_size.height
        parts = list(app.transcript.query(Section))
        await until(pilot, lambda: parts[0].rests)
        assert not parts[-1].rests
        assert app.transcript.virtual_size.height == height
        await pilot.press("ctrl+home")
        await until(pilot, lambda: not parts[0].rests and parts[-2].rests)
        await until(pilot, lambda: "line 0 of a long answer" in screen_text(app))
        await pilot.press("ctrl+f", *"line 799", "enter")
        await until(pilot, lambda: "line 799 of a long answer" in screen_text(app))
        await pilot.resize_terminal(50, 20)
        await until(pilot, lambda: app.transcript.virtual_size.height >= height)


@on_screen
async def test_what_was_written_and_not_sent_is_found_the_next_time(tmp_path: Path) -> None:
    history = History(tmp_path / "history")
    async with running(history=history) as (app, pilot):
        await rests(app, pilot)
        app.composer.write("half a thought")
        await pilot.press("ctrl+q")
    async with running(history=history) as (app, pilot):
        await pilot.press("up")
        assert app.composer.text == "half a thought"


@on_screen
async def test_what_a_library_prints_is_a_notice() -> None:
    async with running() as (app, pilot):
        print("localspec: downloading a.gguf (1 MB)")
        await until(pilot, lambda: "downloading a.gguf (1 MB)" in said(app))


@on_screen
async def test_the_first_message_is_sent_at_once() -> None:
    async with running(says(*PIECES), first="/not a command") as (app, pilot):
        await rests(app, pilot)
        assert turns(app) == [("/not a command", TEXT)]
