"""Typing, resizing and an answer that comes, all at once: no key is lost, nothing crashes, the answer is whole."""

from __future__ import annotations

import shutil
from contextlib import closing
from itertools import cycle
from pathlib import Path

import pytest
from textual import events
from textual.widgets import Input

from localspec.chat.store import Store
from scripts.terminal import Screen
from tests.cli.support import command, environment
from tests.tui.scenes import OPTIONS
from tests.tui.staged import ANSWER, staged
from tests.tui.support import FakeOpener, hold, on_screen, release, rests, running, screen_text, target_of, turns, until

FAKE = "tests.cli.repl.fake_main"
SIZES = ((120, 40), (40, 12), (80, 24), (20, 8), (100, 30))
LONG = "\n".join(f"{ANSWER}\nThat was part {number}.\n" for number in range(3))
TYPED = "typed while all of that happens: \\, / and [b]brackets[/b]"
PATIENCE = 60.0


def parts(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


@pytest.mark.parametrize("panel", ["", "f2", "f3", "f4"])
@on_screen
async def test_typing_and_resizing_while_an_answer_comes(panel: str) -> None:
    async with running(opener=FakeOpener(staged(LONG)), options=OPTIONS) as (app, pilot):
        await rests(app, pilot)
        hold(app, after=60)  # the answer cannot be over before the last key
        app.composer.write("go")
        await pilot.press("enter")
        if panel:
            await pilot.press(panel)
            app.set_focus(app.composer)
        for letters, size in zip(parts(TYPED, 10), cycle(SIZES), strict=False):
            await pilot.press(*letters)
            await pilot.resize_terminal(*size)
        await until(pilot, target_of(app).held.is_set)
        assert app.conductor.busy
        assert app.composer.text == TYPED
        release(app)
        await rests(app, pilot)
        await pilot.resize_terminal(100, 30)
        if app.side.open:
            await pilot.press(panel)
        await until(pilot, lambda: "That was part 2." in screen_text(app))
        assert turns(app) == [("go", LONG)]
        await pilot.press("enter")
        await rests(app, pilot)
        assert turns(app)[1:] == [(TYPED, LONG)]


@on_screen
async def test_keys_that_come_in_a_bunch_count_in_their_order() -> None:
    async with running() as (app, pilot):
        await rests(app, pilot)
        bunch = [*"lost", "ctrl+u", *"helo", "left", "l", "end", *"x!", "left", "backspace", "ctrl+j", "home", "a", "b"]
        for key in bunch:
            app.post_message(events.Key(key, key if len(key) == 1 else None))
        await pilot.pause()
        await until(pilot, lambda: "b" in app.composer.text)
        assert app.composer.text == "hello\nab!"
        for key in ("end", "ctrl+f", *"find", "escape", "?"):
            app.post_message(events.Key(key, key if len(key) == 1 else None))
        await until(pilot, lambda: "?" in app.composer.text)
        assert app.composer.text == "hello\nab!?"
        assert app.find_bar.query_one(Input).value == "find"


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is missing")
def test_the_same_in_a_terminal(tmp_path: Path) -> None:
    places = dict.fromkeys(("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"), str(tmp_path))
    settings = [f"{name}={value}" for name, value in {"PYTHONPATH": environment()["PYTHONPATH"], **places}.items()]
    options = ("-m", "slow-large.gguf", "--temp", "0", "-n", "120", "--ignore-eos")
    chat = ["env", "-u", "COLUMNS", "-u", "LINES", *settings, *command("chat", "--tui", *options, module=FAKE)]
    with Screen(chat, 100, 30, "chat") as screen:
        screen.until(r"\n ready ", PATIENCE)
        screen.type("hello")  # once in peace
        screen.until("120 tok", PATIENCE)
        screen.press("C-n")
        screen.until("a new conversation", PATIENCE)
        screen.type("hello")
        screen.until("answering", PATIENCE)
        for letters, size in zip(parts(TYPED, 10), cycle(SIZES), strict=False):
            screen.write(letters)
            screen.resize(*size)
        screen.resize(120, 40)
        screen.until(r"\[/b\] *│", PATIENCE)
        screen.until("120 tok", PATIENCE)
        screen.press("Enter")
        screen.until("120 tok.*120 tok", PATIENCE)
        screen.press("C-q")
        screen.until_over(PATIENCE)
    with closing(Store(tmp_path / "localspec" / "sessions.db")) as store:
        disturbed, quiet = ([entry.content for entry in store.tree(one.id).path(one.leaf)] for one in store.sessions())
    assert disturbed[:2] == quiet
    assert disturbed[2] == TYPED
