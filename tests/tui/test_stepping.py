"""Step mode on the screen: every key shows what it brought, and whatever ends the answer keeps what was shown."""

from __future__ import annotations

import pytest

from localspec.backends.fake import FakeTarget, FakeVocab
from localspec.chat import ChatTemplate
from localspec.engine import Engine
from localspec.talk.trace import AnswerTrace
from localspec.tui.step_words import step_words
from localspec.tui.visible import visible
from localspec.types import Paced, StepStats, TokenInfo, Tokens, TreeTrace
from tests.cli.scripted import TEMPLATE
from tests.engine.support import draft_model
from tests.tui.stepping_scenarios import ask_paced, waits
from tests.tui.support import ask, hold, on_screen, release, rests, running, said, says, screen_text, turns, until

WORDS = tuple(f"w{number} " for number in range(12))
TREE = TreeTrace(
    (1, 2, 3, 4),
    (-1, 0, 1, 2),
    (1.0, 0.9, 0.8, 0.7),
    ("", "a", "a", "a"),
    (1, 2),
    (b"The", b" cat", b" sat", b" [b]on"),
    (None, 0.95, 0.9, 0.01),
)
DRAWN = (TokenInfo(2, b" cat", "a", 1), TokenInfo(3, b" sat", "a", 2), TokenInfo(5, b" up"))


def guesses() -> Engine:
    """An engine whose draft model is right now and then."""
    target = FakeTarget(FakeVocab(40), seed=5, spread=2.0, n_ctx=512)
    return Engine(target, [draft_model(target, seed=5, noise=1.0)], template=ChatTemplate(TEMPLATE, origin="a test"))


def heard(*events: Tokens | Paced) -> AnswerTrace:
    trace = AnswerTrace()
    for event in events:
        trace.hear(event)
    return trace


def step(draft_n: int, accepted: int, tree: TreeTrace | None) -> StepStats:
    return StepStats(draft_n, min(draft_n, accepted + 1), accepted, accepted + 1, 0, 0.0, 0.1, 0.0, tree)


def test_a_step_in_a_line() -> None:
    assert step_words(AnswerTrace()) == ""
    plain = Tokens(1, " up", DRAWN[2:], step(0, 0, None))
    assert step_words(heard(plain)) == "step 1: nothing was guessed  →␣up"
    guessed = Tokens(1, " cat sat up", DRAWN, step(3, 2, TREE))
    assert step_words(heard(plain, guessed)) == "step 2: 2 of 3 guesses held  ✓␣cat  ✓␣sat  ✗␣[b]on  →␣up"
    held_back = Tokens(1, "", (), step(1, 0, None))
    assert step_words(heard(held_back)) == "step 1: 0 of 1 guess held"
    ends = Tokens(1, " cat", DRAWN[:1], step(3, 2, TREE))
    assert step_words(heard(ends)) == "step 1: 2 of 3 guesses held  ✓␣cat  ✓␣sat  ✗␣[b]on"
    many = TreeTrace((1,) * 12, (-1, *(0,) * 11), (1.0,) * 12, ("",) * 12, (), (b"\x1b",) * 12)
    assert step_words(heard(Tokens(1, "", (), step(11, 0, many)))).endswith("✗\\x1b  ✗ 5 more")


def test_only_the_step_of_a_key_counts_as_its_own() -> None:
    tokens, granted = Tokens(1, "a", DRAWN[2:], step(0, 0, None)), Paced(1, 0)
    assert not heard(tokens).paced
    assert heard(granted).paced
    assert heard(granted, tokens, granted).paced
    assert heard(granted, tokens).paced  # the last of an answer, perhaps
    assert not heard(granted, tokens, tokens).paced


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
@on_screen
async def test_statistics_begin_with_the_step_that_was_made(size: tuple[int, int]) -> None:
    async with running(guesses(), size=size) as (app, pilot):
        await rests(app, pilot)
        app.conductor.chat.values |= {"n_predict": 60, "ignore_eos": True}
        await pilot.press("f3")
        await ask_paced(app, pilot)
        await until(pilot, lambda: "No step was made yet" in screen_text(app))
        trace = app.conductor.chat.trace
        while not trace.steps or trace.steps[-1].stats.accepted == trace.steps[-1].stats.draft_n:
            made = len(trace.steps) + 1
            await pilot.press("alt+n")
            await until(pilot, lambda n=made: f"Step {n}: " in screen_text(app))  # type: ignore[misc]
        newest, words = trace.steps[-1], step_words(trace)
        tree = trace.tree(newest)
        assert tree is not None  # without anybody having asked for trees
        rejected = next(node for node in range(1, len(tree.tokens)) if node not in tree.path)
        sign = f"✗ {visible(tree.pieces[rejected])}"
        await until(pilot, lambda: words[:30] in screen_text(app) and sign in screen_text(app))
        await pilot.press("alt+r")
        await rests(app, pilot)
        await until(pilot, lambda: f"Step {newest.number}: " not in screen_text(app))
        assert words[:30] not in screen_text(app)


@on_screen
async def test_tokens_are_shown_with_the_step_that_was_made() -> None:
    async with running(says(*WORDS)) as (app, pilot):
        await ask_paced(app, pilot)
        await pilot.press("alt+n", "f4")
        await until(pilot, lambda: screen_text(app).count("step 1: nothing was guessed") == 2)
        await pilot.press("alt+n")
        await until(pilot, lambda: screen_text(app).count("step 2: nothing was guessed") == 2)


@pytest.mark.parametrize("key", ["escape", "ctrl+c"])
@on_screen
async def test_a_stop_while_it_waits_keeps_what_was_shown(key: str) -> None:
    async with running(says(*WORDS)) as (app, pilot):
        await ask_paced(app, pilot)
        await pilot.press("alt+n", "alt+n")
        await until(pilot, lambda: turns(app)[-1][1] == "w0 w1 ")
        await pilot.press(key)
        await rests(app, pilot)
        assert app.conductor.chat.conversation.turns[-1].stopped
        assert turns(app)[-1][1] == "w0 w1 "
        assert "stopped" in said(app)
        assert "nothing was guessed" not in said(app)
        assert app.status_line.status.doing == ""


@on_screen
async def test_one_that_runs_waits_when_step_mode_is_turned_on() -> None:
    async with running(says(*WORDS)) as (app, pilot):
        await rests(app, pilot)
        hold(app, after=6)
        app.composer.write("a")
        await pilot.press("enter")
        await until(pilot, lambda: bool(turns(app)) and turns(app)[-1][1] != "")
        await pilot.press("alt+t")
        release(app)
        await until(pilot, lambda: waits(app))
        assert turns(app)[-1][1] != "".join(WORDS)
        await pilot.press("alt+r")
        await rests(app, pilot)
        assert turns(app)[-1][1] == "".join(WORDS)


@on_screen
async def test_what_is_sent_meanwhile_waits_its_turn_and_waits_again() -> None:
    async with running(says(*WORDS)) as (app, pilot):
        await ask_paced(app, pilot)
        app.composer.write("second")
        await pilot.press("enter")
        await until(pilot, lambda: "waits: second" in screen_text(app))
        await pilot.press("alt+r")
        await until(pilot, lambda: len(turns(app)) == 2 and waits(app))
        assert turns(app)[-1] == ("second", "")


@on_screen
async def test_the_command_says_how_it_stands() -> None:
    async with running(says(*WORDS)) as (app, pilot):
        await ask(app, pilot, "/step")
        assert "step mode is off" in said(app)
        await ask(app, pilot, "/step on")
        assert "step mode is on: answers wait before every verify step" in said(app)
        app.composer.write("a")
        await pilot.press("enter")
        await until(pilot, lambda: waits(app))


@on_screen
async def test_keys_are_named_as_they_are() -> None:
    async with running(says(*WORDS), keymap={"step": "f10,alt+i", "run-on": "f11"}) as (app, pilot):
        await ask_paced(app, pilot)
        assert app.status_line.status.doing == "waits for a key: f10 one step, f11 to the end"
        assert app.status_line.status.line(48) == app.status_line.status.doing
        await pilot.press("f10")
        await until(pilot, lambda: turns(app)[-1][1] == "w0 ")


@on_screen
async def test_a_closing_screen_waits_for_nobody() -> None:
    async with running(says(*WORDS)) as (app, pilot):
        await ask_paced(app, pilot)
        await pilot.press("alt+n")
        await until(pilot, lambda: turns(app)[-1][1] == "w0 ")
        app.conductor.close()
        assert not app.conductor._thread.is_alive()
        assert app.conductor.chat.conversation.turns[-1].message.content == "w0 "
