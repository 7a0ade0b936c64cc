"""Step mode of a chat, without a screen."""

from __future__ import annotations

import pytest

from localspec.engine import Engine, Handle
from localspec.talk.chat import Chat
from localspec.talk.turn import TurnEvent
from localspec.types import Finished, GenerationRequest, Paced, Tokens
from tests.cli.repl.support import chat, contents, run


def stepped(one: Chat, text: str = "abc") -> list[TurnEvent]:
    """A question, every step of whose answer is let on by itself."""
    events = []
    for event in one.ask(text):
        events.append(event)
        if isinstance(event, Paced):
            assert one.running.step()
    return events


def test_an_answer_that_is_let_on_step_by_step_is_the_same() -> None:
    one, other = chat(), chat()
    one.running.pace(True)
    events = stepped(one)
    steps = [type(event) for event in events if isinstance(event, Tokens | Paced)]
    assert steps[:3] == [Paced, Tokens, Paced]
    assert steps.count(Tokens) == one.trace.stats.steps
    run(other.ask("abc"))
    assert contents(one) == contents(other)


def test_trees_come_without_a_watcher() -> None:
    one = chat(n_predict=200)
    one.running.pace(True)
    stepped(one)
    step = one.trace.last_draft
    assert step is not None
    assert one.trace.tree(step) is not None


def test_it_runs_on_and_the_next_waits_again() -> None:
    one = chat()
    one.running.pace(True)
    waits = 0
    for _ in range(2):
        for event in one.ask("abc"):
            if isinstance(event, Paced):
                waits += 1
                assert one.running.run_on()
    assert waits == 2


def test_turned_off_while_it_waits_it_goes_on() -> None:
    one = chat()
    one.running.pace(True)
    waits = 0
    for event in one.ask("abc"):
        if isinstance(event, Paced):
            waits += 1
            one.running.pace(False)
    assert waits == 1
    assert isinstance(one.last, Finished)


def test_a_stop_while_it_waits_keeps_what_was_shown() -> None:
    one = chat()
    one.running.pace(True)
    events = iter(one.ask("abc"))
    for event in events:
        if isinstance(event, Paced):
            if one.trace.steps:
                one.stop()
            else:
                one.running.step()
    assert one.conversation.turns[-1].stopped
    assert one.trace.stats.steps == 1


@pytest.mark.parametrize("before", [False, True])
def test_what_is_wanted_while_a_question_is_on_its_way_counts(before: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    one = chat()
    one.running.pace(before)
    submit = Engine.submit

    def turns_it(engine: Engine, request: GenerationRequest) -> Handle:
        one.running.pace(not before)
        return submit(engine, request)

    monkeypatch.setattr(Engine, "submit", turns_it)
    waits = 0
    for event in one.ask("abc"):
        if isinstance(event, Paced):
            waits += 1
            one.running.run_on()
    assert waits == (not before)


def test_without_step_mode_or_an_answer_nothing_is_let_on() -> None:
    one = chat()
    assert (one.running.step(), one.running.run_on()) == (False, False)
    for event in one.ask("abc"):
        if isinstance(event, Tokens):
            assert (one.running.step(), one.running.run_on()) == (False, False)  # a step let on would make it wait
    one.running.pace(True)
    assert (one.running.step(), one.running.run_on()) == (False, False)
