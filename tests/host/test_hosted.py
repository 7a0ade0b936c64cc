"""The engine in a process of its own: the same answers, errors and cancellations as in this one."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.errors import EngineError, LocalspecError, ModelError, UsageError
from localspec.host import HostedEngine
from localspec.host.inbox import LIMIT
from localspec.loading import EngineOptions, ModelOptions
from localspec.types import (
    Event,
    Finished,
    GenerationRequest,
    SamplingParams,
    SpecParams,
    Started,
    StepStats,
    Timings,
    Tokens,
)
from tests.engine.support import Outcome, request
from tests.host import factories
from tests.host.factories import Options

NO_TIME = {"t_draft": 0.0, "t_verify": 0.0, "t_host": 0.0}
SAMPLED = SamplingParams(temperature=1.0, seed=3, ignore_eos=True)
LONG = request(range(2, 30), sampling=SAMPLED, n=60)


@pytest.fixture(scope="module")
def engine() -> Iterator[HostedEngine]:
    with HostedEngine(Options(n_ctx=2048), factory=factories.engine) as hosted:
        yield hosted


def here(options: Options, wish: GenerationRequest) -> Outcome:
    with factories.engine(options, progress=lambda stage, share: True) as engine:
        return Outcome(tuple(engine.submit(wish)))


def timeless(event: Event) -> Event:
    match event:
        case Tokens(step=StepStats() as step):
            return replace(event, step=replace(step, **NO_TIME))  # type: ignore[arg-type]
        case Finished(timings=timings, stats=stats):
            still = Timings(timings.prompt_n, timings.cache_n, 0.0, 0.0, timings.predicted_n, 0.0)
            return replace(event, timings=still, stats=replace(stats, **NO_TIME))  # type: ignore[arg-type]
        case Started():
            return replace(event, waited_s=0.0)
    return event


def test_how_it_stands(engine: HostedEngine) -> None:
    before = engine.status
    for _ in engine.submit(request([7, 7, 7, 7, 8], n=3)):
        pass
    after = engine.status
    assert (after.running, after.waiting, after.guessing, after.why, after.n_ctx) == (0, 0, True, "", 2048)
    assert after.kept >= 1
    assert after.cells >= 5
    assert after.prompt_computed + after.prompt_reused - before.prompt_computed - before.prompt_reused == 4
    assert after.passes > before.passes


@pytest.mark.parametrize(
    "wish",
    [
        request([5, 6, 7]),
        replace(LONG, trace=True, logprobs=2, spec=SpecParams(depth=4, nodes=6, width=2)),
        GenerationRequest(prompt="hello", sampling=SAMPLED, max_tokens=30, stop=("z", "qu")),
        request([2], n=0),
    ],
)
def test_events_are_those_of_an_engine_in_this_process(wish: GenerationRequest) -> None:
    with HostedEngine(Options(), factory=factories.engine) as hosted:
        handle = hosted.submit(wish)
        assert handle.number == 1
        assert list(map(timeless, handle)) == list(map(timeless, here(Options(), wish).events))
        with factories.engine(Options(), progress=lambda stage, share: True) as local:
            assert hosted.encode(wish) == local.encode(wish) != []
        assert hosted.info.drafters == ("draft-simple", "ngram-simple")


def test_three_at_once_with_drafters_and_options_of_their_own(engine: HostedEngine) -> None:
    wishes = [
        replace(LONG, spec=SpecParams(depth=4, types=("draft-simple",))),
        replace(LONG, spec=SpecParams(depth=5, types=("ngram-simple",)), sampling=replace(SAMPLED, seed=8)),
        request([9, 9, 4], n=40, spec=SpecParams(depth=3, nodes=8, width=3)),
    ]
    handles = [engine.submit(wish) for wish in wishes]
    assert len({handle.number for handle in handles}) == 3
    # The last is read first: nobody waits for a reader.
    got = [Outcome(tuple(handle)) for handle in reversed(handles)][::-1]
    for wish, handle, outcome in zip(wishes, handles, got, strict=True):
        assert {event.request for event in outcome.events} == {handle.number}
        assert outcome.told == here(Options(), wish).told
        drafted = {one.name for one in outcome.stats.by_source}
        assert wish.spec.types is None or drafted <= set(wish.spec.types)
    assert got[0].stats.draft_n > 0


def test_readers_in_threads_of_their_own(engine: HostedEngine) -> None:
    wishes = [replace(LONG, sampling=replace(SAMPLED, seed=seed)) for seed in range(6)]
    got: dict[int, Outcome] = {}

    def ask(i: int) -> None:
        got[i] = Outcome(tuple(engine.submit(wishes[i])))

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [got[i].told for i in range(6)] == [here(Options(), wish).told for wish in wishes]


@pytest.mark.parametrize(
    ("wish", "kind", "words"),
    [
        (request([5000]), UsageError, "token 5000 is outside the vocabulary"),
        (request([]), UsageError, "the prompt is empty"),
        (GenerationRequest(messages=()), ModelError, "no chat template"),
    ],
)
def test_requests_that_cannot_be_honoured_raise_here(
    engine: HostedEngine, wish: GenerationRequest, kind: type[LocalspecError], words: str
) -> None:
    for ask in (engine.submit, engine.encode):
        with pytest.raises(kind, match=words) as caught:
            ask(wish)
        assert caught.value.hint
    assert engine.alive


def test_length_is_checked_at_submit_only(engine: HostedEngine) -> None:
    wish = request([2] * 3000)
    with pytest.raises(UsageError, match="the prompt has 3000 tokens, the context holds 2048") as caught:
        engine.submit(wish)
    assert caught.value.hint
    assert len(engine.encode(wish)) == 3000


def test_options_are_checked_at_submit_only(engine: HostedEngine) -> None:
    wish = request([2], spec=SpecParams(types=("eagle3",)))
    with pytest.raises(UsageError, match="drafter eagle3 is not loaded"):
        engine.submit(wish)
    assert engine.encode(wish) == [2]


def test_a_request_that_is_none_is_refused_and_nothing_breaks(engine: HostedEngine) -> None:
    with pytest.raises(EngineError, match="AttributeError"):
        engine.submit("hello")  # type: ignore[arg-type]
    assert Outcome(tuple(engine.submit(LONG))).told == here(Options(), LONG).told


def test_leaving_the_loop_cancels_and_a_second_loop_gives_the_rest() -> None:
    with HostedEngine(Options("steady"), factory=factories.engine) as hosted:
        handle = hosted.submit(replace(LONG, max_tokens=400))
        first = []
        for event in handle:
            first.append(event)
            if isinstance(event, Tokens):
                break
        rest = list(handle)
        outcome = Outcome((*first, *rest))
        assert outcome.finished.reason == "cancelled"
        assert 0 < len(outcome.ids) < 400
        assert tuple(info.id for info in outcome.infos) == outcome.ids
        assert list(handle) == rest[-1:]


def test_cancel_interrupts_a_pass() -> None:
    with HostedEngine(Options("slow", at=4), factory=factories.engine) as hosted:
        handle = hosted.submit(LONG)
        events = iter(handle)
        while not isinstance(next(events), Tokens):
            pass
        time.sleep(0.2)  # well into the slow pass
        began = time.monotonic()
        threading.Thread(target=handle.cancel).start()
        *_, last = events
        assert time.monotonic() - began < 5
        assert isinstance(last, Finished)
        assert last.reason == "cancelled"
        assert hosted.alive


def test_cancel_of_one_leaves_the_other_alone() -> None:
    with HostedEngine(Options("steady"), factory=factories.engine) as hosted:
        doomed, other = hosted.submit(replace(LONG, max_tokens=400)), hosted.submit(LONG)
        for event in other:
            if isinstance(event, Tokens):
                doomed.cancel()
            last = event
        assert isinstance(last, Finished)
        assert last.ids == here(Options(), LONG).ids
        assert Outcome(tuple(doomed)).finished.reason == "cancelled"


def test_a_reader_that_sleeps_costs_neither_memory_nor_others_their_time(engine: HostedEngine) -> None:
    wish = request([2], sampling=SAMPLED, n=1200, spec=SpecParams(depth=0))
    slow, quick = engine.submit(wish), engine.submit(LONG)
    assert Outcome(tuple(quick)).ids == here(Options(), LONG).ids
    deadline = time.monotonic() + 60
    while not slow._inbox.over and time.monotonic() < deadline:
        assert len(slow._inbox._events) <= LIMIT + 1  # one is just being joined
        time.sleep(0.01)
    outcome = Outcome(tuple(slow))
    assert len(outcome.events) < LIMIT + 2
    assert outcome.told == here(Options(n_ctx=2048), wish).told
    assert sum(step.emitted for step in outcome.steps) == outcome.stats.emitted == 1200
    assert sum(step.t_verify for step in outcome.steps) == pytest.approx(outcome.stats.t_verify)


def test_a_real_model_by_default(smol: Path) -> None:
    wish = GenerationRequest(prompt="The capital of France is", sampling=SamplingParams(temperature=0), max_tokens=6)
    stages = []

    def on_progress(stage: str, share: float) -> bool:
        stages.append((stage, share))
        return True

    options = EngineOptions(ModelOptions(smol, threads=1), n_ctx=256, measure=False)
    with HostedEngine(options, on_progress=on_progress) as hosted:
        first = Outcome(tuple(hosted.submit(wish)))
        hosted.restart()
        again = Outcome(tuple(hosted.submit(wish)))
    assert "Paris" in first.text
    assert again.told == first.told
    assert {stage for stage, _ in stages} == {"target"}
    assert max(share for _, share in stages) == 1.0
