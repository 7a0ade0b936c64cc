"""Verify steps that are granted one by one: exactly those are made, and nobody else waits for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest

from localspec.backends.base import Rows, Work
from localspec.backends.fake import FakeTarget, FakeVocab
from localspec.engine import Engine, Handle
from localspec.errors import UsageError
from localspec.types import (
    Event,
    Failed,
    Finished,
    GenerationRequest,
    Paced,
    Prefill,
    SamplingParams,
    SpecParams,
    Started,
    Tokens,
)
from tests.engine.support import Outcome, answer, check, draft_model, drain, fake, ngrams, plain, request

NO_END = SamplingParams(temperature=0.8, ignore_eos=True, seed=3)
LONG = request([2 + i % 5 for i in range(40)], sampling=NO_END, n=30, spec=SpecParams(depth=3, width=2))
SHORT = request([9, 3, 7], sampling=NO_END, n=12, spec=SpecParams(depth=2))


def paced(wish: GenerationRequest, steps: int = 0) -> GenerationRequest:
    return replace(wish, steps=steps)


def engine_of(*, n_ctx: int = 256, sequences: int = 2) -> Engine:
    target = fake(n_ctx=n_ctx, sequences=sequences)
    return Engine(target, [draft_model(target, noise=1.0), ngrams()], prompt_chunk=8)


def passes(engine: Engine) -> int:
    assert isinstance(engine.target, FakeTarget)
    return engine.target.passes


def until_idle(engine: Engine, handle: Handle) -> list[Event]:
    """What comes until the engine has nothing to do."""
    while not engine.idle:
        engine.step()
        check(engine)
    return handle.drain()


def step_by_step(engine: Engine, handle: Handle) -> list[Event]:
    """All of an answer, every step granted by itself."""
    events = until_idle(engine, handle)
    while not isinstance(events[-1], Finished | Failed):
        handle.grant(1)
        more = until_idle(engine, handle)
        first, *rest = more
        assert isinstance(first, Tokens)
        assert first.step is not None
        assert isinstance(rest[-1], Paced | Finished)
        assert not any(isinstance(event, Tokens) for event in rest)
        events += more
    return events


def cut_short(events: Sequence[Event], whole: Outcome) -> None:
    """It was stopped, and what it said is the beginning of the whole answer."""
    got = Outcome(tuple(events))
    assert got.finished.reason == "cancelled"
    assert whole.text.startswith(got.text)
    assert got.ids == whole.ids[: len(got.ids)] == tuple(info.id for info in got.infos)


def test_it_reads_its_prompt_and_then_waits() -> None:
    engine = engine_of()
    handle = engine.submit(paced(LONG))
    first, *reading, last = until_idle(engine, handle)
    assert isinstance(first, Started)
    assert {type(event) for event in reading} == {Prefill}
    assert last == Paced(1, 0)
    before = passes(engine)
    for _ in range(20):
        engine.step()
    assert (passes(engine), handle.drain()) == (before, [])


def test_every_grant_is_one_step_and_the_text_is_the_same() -> None:
    whole = answer(engine_of(), LONG)
    engine = engine_of()
    got = Outcome(tuple(step_by_step(engine, engine.submit(paced(LONG)))))
    assert got.told == whole.told == answer(Engine(fake()), plain(LONG)).told
    assert [replace_times(step) for step in got.steps] == [replace_times(step) for step in whole.steps]
    assert got.stats.draft_n > 0


def replace_times(step: object) -> object:
    return replace(step, t_draft=0.0, t_verify=0.0, t_host=0.0)  # type: ignore[type-var]


def test_steps_that_were_asked_for_come_before_the_first_wait() -> None:
    engine = engine_of()
    events = until_idle(engine, engine.submit(paced(LONG, steps=3)))
    kinds = [type(event) for event in events if not isinstance(event, Started | Prefill)]
    assert kinds == [Tokens, Paced] * 3
    assert [event.left for event in events if isinstance(event, Paced)] == [2, 1, 0]


def test_several_grants_add_up() -> None:
    engine = engine_of()
    handle = engine.submit(paced(LONG))
    until_idle(engine, handle)
    handle.grant(1)
    handle.grant(2)
    assert [event.left for event in until_idle(engine, handle) if isinstance(event, Paced)] == [2, 1, 0]


def test_it_runs_on_to_its_end() -> None:
    engine = engine_of()
    handle = engine.submit(paced(LONG, steps=1))
    events = until_idle(engine, handle)
    handle.grant(None)
    rest = until_idle(engine, handle)
    assert not any(isinstance(event, Paced) for event in rest)
    assert Outcome((*events, *rest)).told == answer(engine_of(), LONG).told


def test_one_that_runs_can_be_made_to_wait() -> None:
    engine = engine_of()
    handle = engine.submit(LONG)
    for _ in range(8):
        engine.step()
    handle.grant(0)
    events = until_idle(engine, handle)
    assert events[-1] == Paced(1, 0)
    assert Outcome((*events, *step_by_step_from(engine, handle))).told == answer(engine_of(), LONG).told


def step_by_step_from(engine: Engine, handle: Handle) -> list[Event]:
    """The rest of an answer that waits."""
    handle.grant(1)
    return step_by_step(engine, handle)


def test_an_iterator_waits_for_a_grant_of_another_thread() -> None:
    engine = engine_of()
    handle = engine.submit(paced(LONG))
    granted = threading.Semaphore(0)
    events: list[Event] = []

    def read() -> None:
        for event in handle:
            events.append(event)
            if isinstance(event, Paced):
                granted.release()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    grants = 0
    while reader.is_alive():
        if granted.acquire(timeout=0.1):
            handle.grant(1)
            grants += 1
    got = Outcome(tuple(events))
    assert got.told == answer(engine_of(), LONG).told
    assert grants == got.stats.steps


def test_an_iterator_that_waits_is_stopped_by_another_thread() -> None:
    engine = engine_of()
    handle = engine.submit(paced(LONG, steps=2))
    events: list[Event] = []
    for event in handle:
        events.append(event)
        if event == Paced(1, 0):
            threading.Timer(0.05, handle.cancel).start()
    cut_short(events, answer(engine_of(), LONG))
    assert answer(engine, SHORT).told == answer(engine_of(), SHORT).told


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_stopped_while_it_waits(steps: int) -> None:
    engine = engine_of()
    handle = engine.submit(paced(LONG, steps))
    events = until_idle(engine, handle)
    handle.cancel()
    cut_short([*events, *until_idle(engine, handle)], answer(engine_of(), LONG))
    assert answer(engine, SHORT).told == answer(engine_of(), SHORT).told


def test_stopped_before_it_is_read() -> None:
    engine = engine_of()
    handle = engine.submit(paced(LONG))
    handle.cancel()
    (last,) = until_idle(engine, handle)
    assert isinstance(last, Finished)
    assert last.reason == "cancelled"


def test_others_go_on_meanwhile() -> None:
    engine = engine_of()
    waiting = engine.submit(paced(LONG, steps=2))
    events = until_idle(engine, waiting)
    (other,) = drain(engine, [engine.submit(SHORT)])
    assert other.told == answer(engine_of(), SHORT).told
    assert waiting.drain() == []
    assert Outcome((*events, *step_by_step_from(engine, waiting))).told == answer(engine_of(), LONG).told


@pytest.mark.parametrize("room", [{"sequences": 1}, {"n_ctx": 75}])
def test_others_get_the_place_of_one_that_waits(room: dict[str, int]) -> None:
    """There is no second slot, or there are not the cells for both."""
    engine = engine_of(**room)
    wish = replace(LONG, stop=("zzz", "abc", "ca"))  # so that text is held back
    waiting = engine.submit(paced(wish, steps=2))
    events = until_idle(engine, waiting)
    others = [engine.submit(LONG), engine.submit(SHORT)]
    first, second = drain(engine, others)
    assert (first.told, second.told) == (answer(engine_of(), LONG).told, answer(engine_of(), SHORT).told)
    assert waiting.drain() == []
    assert Outcome((*events, *step_by_step_from(engine, waiting))).told == answer(engine_of(), wish).told


def asked(wish: GenerationRequest) -> tuple[Engine, Handle]:
    engine = engine_of()
    return engine, engine.submit(wish)


def test_one_that_lent_its_place_is_stopped_without_loss() -> None:
    engine = engine_of(sequences=1)
    said = "".join(event.text for event in until_idle(*asked(paced(LONG, steps=3))) if isinstance(event, Tokens))
    held_back = replace(LONG, stop=(f"{said[-1]} and no more",))
    waiting = engine.submit(paced(held_back, steps=3))
    events = until_idle(engine, waiting)
    other = engine.submit(SHORT)
    engine.step()
    waiting.cancel()
    (short,) = drain(engine, [other])
    assert short.told == answer(engine_of(), SHORT).told
    assert "".join(event.text for event in events if isinstance(event, Tokens)) == said[:-1]
    cut_short([*events, *waiting.drain()], answer(engine_of(), held_back))


class Interrupted(FakeTarget):
    """Another request is cancelled in the middle of a pass."""

    victim: Handle | None = None

    def forward(self, work: Sequence[Work]) -> list[Rows]:
        if self.victim is not None and len(work) == 2:
            victim, self.victim = self.victim, None
            victim.cancel()
        return super().forward(work)


def test_a_pass_that_was_given_up_costs_no_grant() -> None:
    target = Interrupted(FakeVocab(12), spread=2.0, n_ctx=256)
    engine = Engine(target, prompt_chunk=8)
    ours = engine.submit(paced(LONG))
    until_idle(engine, ours)
    victim = engine.submit(LONG)
    for _ in range(12):
        engine.step()
    target.victim = victim
    ours.grant(1)
    drain(engine, [victim])
    tokens, *_, last = until_idle(engine, ours)
    assert isinstance(tokens, Tokens)
    assert last == Paced(1, 0)
    assert target.victim is None


def test_the_clock_stands_still_while_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, now = engine_of(), 0.0

    def clock() -> float:
        nonlocal now
        now += 0.001
        return now

    monkeypatch.setattr(time, "perf_counter", clock)
    handle = engine.submit(paced(SHORT))
    events = until_idle(engine, handle)
    while not isinstance(events[-1], Finished):
        now += 1000.0
        handle.grant(1)
        events = until_idle(engine, handle)
    timings = events[-1].timings
    assert 0 < timings.prompt_s < timings.ttft_s < 1
    assert 0 < timings.predicted_s < 1
    stopped = engine.submit(paced(LONG))
    until_idle(engine, stopped)
    now += 1000.0
    stopped.cancel()
    (*_, last) = until_idle(engine, stopped)
    assert isinstance(last, Finished)
    assert last.timings.ttft_s < 1


def test_steps_cannot_be_fewer_than_none() -> None:
    with pytest.raises(UsageError, match="steps -1 is negative"):
        paced(LONG, steps=-1)
