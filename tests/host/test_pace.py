"""Step mode through the engine's process: it waits there, and nothing of it is lost or joined on the way."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace

import psutil
import pytest

from localspec.host import HostedEngine, HostedHandle
from localspec.host.inbox import LIMIT
from localspec.talk.trace import AnswerTrace
from localspec.types import Event, Failed, Finished, Paced, SamplingParams, SpecParams, Tokens
from tests.engine.support import Outcome, request
from tests.host import factories
from tests.host.factories import Options

SAMPLED = SamplingParams(temperature=1.0, seed=3, ignore_eos=True)
LONG = request(range(2, 30), sampling=SAMPLED, n=60)
PACED = replace(LONG, steps=0)


@pytest.fixture
def engine() -> Iterator[HostedEngine]:
    with HostedEngine(Options(n_ctx=4096), factory=factories.engine) as hosted:
        yield hosted


def until_it_waits(events: Iterator[Event]) -> list[Event]:
    got = []
    for event in events:
        got.append(event)
        if isinstance(event, Paced) and not event.left:
            break
    return got


def waiting(engine: HostedEngine) -> tuple[HostedHandle, Iterator[Event], list[Event]]:
    """A request that has made two steps, and its events so far."""
    handle = engine.submit(replace(LONG, steps=2))
    events = iter(handle)
    return handle, events, until_it_waits(events)


def test_every_grant_is_one_step_and_the_text_is_the_same(engine: HostedEngine) -> None:
    handle = engine.submit(PACED)
    events, grants = iter(handle), 0
    got: list[Event] = []
    while not got or not isinstance(got[-1], Finished):
        if got:
            handle.grant(1)
            grants += 1
        more = until_it_waits(events)
        assert sum(isinstance(event, Tokens) for event in more) == bool(got)
        got += more
    whole = Outcome(tuple(engine.submit(LONG)))
    outcome = Outcome(tuple(got))
    assert outcome.told == whole.told
    assert grants == outcome.stats.steps == whole.stats.steps


def test_it_waits_without_a_pass_while_another_answer_comes(engine: HostedEngine) -> None:
    handle, events, got = waiting(engine)
    other = Outcome(tuple(engine.submit(LONG)))
    assert engine.encode(LONG) == list(range(2, 30))
    assert not handle._inbox._events
    handle.grant(None)
    assert Outcome((*got, *events)).told == other.told


def test_a_process_that_waits_does_nothing(engine: HostedEngine) -> None:
    waiting(engine)
    process = psutil.Process(engine.pid)
    before = process.cpu_times()
    time.sleep(0.3)
    after = process.cpu_times()
    assert after.user + after.system - before.user - before.system < 0.1


def test_granted_steps_come_one_by_one_however_slow_the_reader(engine: HostedEngine) -> None:
    n = 3 * LIMIT
    wish = request([2], sampling=SAMPLED, n=n + 9, spec=SpecParams(depth=0))
    handle = engine.submit(replace(wish, steps=0))
    events = iter(handle)
    until_it_waits(events)
    for _ in range(n):
        handle.grant(1)
    while len(handle._inbox._events) < 2 * n:
        time.sleep(0.01)
    trace = AnswerTrace()
    while len(trace.steps) < n:
        trace.hear(next(events))
    assert [step.number for step in trace.steps] == list(range(1, n + 1))
    assert {step.joined for step in trace.steps} == {1}


def test_it_is_stopped_while_it_waits(engine: HostedEngine) -> None:
    handle, events, got = waiting(engine)
    handle.cancel()
    outcome = Outcome((*got, *events))
    assert outcome.finished.reason == "cancelled"
    assert outcome.stats.steps == 2
    whole = Outcome(tuple(engine.submit(LONG)))
    assert whole.text.startswith(outcome.text)


def test_a_process_that_is_killed_while_it_waits_is_an_event(engine: HostedEngine) -> None:
    handle, events, got = waiting(engine)
    os.kill(engine.pid, signal.SIGKILL)
    *_, last = events
    assert isinstance(last, Failed)
    assert last.kind == "EngineDied"
    handle.grant(1)  # nobody hears it
    engine.restart()
    whole = Outcome(tuple(engine.submit(LONG)))
    assert whole.text.startswith(Outcome((*got, last)).text)


def test_a_front_end_that_goes_is_not_waited_for(engine: HostedEngine) -> None:
    _, events, got = waiting(engine)
    engine.close()
    outcome = Outcome((*got, *events))
    assert outcome.finished.reason == "cancelled"  # it ended by itself: one that is killed says nothing
