"""Many requests, one engine: same texts, prompts read once, nobody starves, memory stays, and the load is heeded."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.backends.base import Rows, Work
from localspec.backends.fake import FakeTarget, FakeVocab
from localspec.control import AutoController, CostCurve, Limits, LoadGuard, Wish
from localspec.drafters.base import Drafter
from localspec.drafters.suffix import Suffix
from localspec.engine import Engine
from localspec.spec.tree import TokenTree
from localspec.types import Failed, Finished, GenerationRequest, Prefill, SamplingParams, SpecParams, Tokens
from tests.engine.support import Outcome, alone, check, draft_model, drain, fake, ngrams, plain, request, together

NO_END = SamplingParams(temperature=0.7, ignore_eos=True, seed=2)


class Watched(FakeTarget):
    """Keeps what each pass was for: (rows of trees, rows of prompts)."""

    def __init__(self, *, n_ctx: int = 512, sequences: int = 4) -> None:
        super().__init__(FakeVocab(12), spread=2.0, n_ctx=n_ctx, sequences=sequences)
        self.seen: list[tuple[int, int]] = []

    def forward(self, work: Sequence[Work]) -> list[Rows]:
        sizes = [0, 0]
        for item in work:
            sizes[item.rows_from == len(item.tree)] += len(item.tree) - item.done
        self.seen.append((sizes[0], sizes[1]))
        return super().forward(work)


def engine_of(target: FakeTarget, *, most_running: int | None = None, load: LoadGuard | None = None) -> Engine:
    drafters: list[Drafter] = [draft_model(target, noise=1.0), ngrams(), Suffix()]
    return Engine(target, drafters, prompt_chunk=16, most_running=most_running, load=load)


def cold(wish: GenerationRequest) -> Outcome:
    return alone(fake(), plain(wish))


WISHES = st.builds(
    request,
    st.lists(st.integers(2, 4), min_size=1, max_size=40),
    sampling=st.builds(SamplingParams, temperature=st.sampled_from([0.0, 0.9]), seed=st.integers(0, 50)),
    spec=st.builds(SpecParams, depth=st.integers(0, 4), width=st.integers(1, 3)),
    n=st.integers(0, 20),
)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(WISHES, min_size=1, max_size=12),
    st.integers(1, 5),
    st.integers(0, 3),
    st.sampled_from([96, 512]),
    st.data(),
)
def test_any_number_at_a_time_with_random_cancellations(
    wishes: list[GenerationRequest], most: int, kept: int, n_ctx: int, data: st.DataObject
) -> None:
    """Requests come in and go at any time: who stays has the text that it has alone, who goes a part of it."""
    engine = engine_of(fake(n_ctx=n_ctx, sequences=most + kept), most_running=most)
    handles = []
    gone = set()
    for number, wish in enumerate(wishes):
        handles.append(engine.submit(wish))
        for _ in range(data.draw(st.integers(0, 3))):
            engine.step()
            check(engine)
            assert len(engine._requests.running) <= most
        if data.draw(st.booleans()):
            victim = data.draw(st.integers(0, number))
            handles[victim].cancel()
            gone.add(victim)
    for number, (wish, got) in enumerate(zip(wishes, drain(engine, handles), strict=True)):
        whole = cold(wish)
        if number in gone and got.finished.reason == "cancelled":
            assert whole.ids[: len(got.ids)] == got.ids
            assert whole.text.startswith(got.text)
        else:
            assert got.told == whole.told


# Prompts


def test_fifty_requests_with_one_system_prompt_read_it_once() -> None:
    target = Watched(n_ctx=2048, sequences=8)
    engine = engine_of(target, most_running=6)
    system = [2 + (i * i) % 7 for i in range(200)]
    wishes = [request([*system, 9, 3 + i % 8, 2 + i % 5], n=4) for i in range(50)]
    outcomes = together(engine, wishes)
    for wish, got in zip(wishes, outcomes, strict=True):
        assert got.told == cold(wish).told
    computed = sum(got.finished.timings.prompt_n - got.finished.timings.cache_n for got in outcomes)
    # Each reads its own three tokens at most, and one of them the rest.
    assert computed <= 200 + 50 * 3
    read = sum(prompts for _, prompts in target.seen)
    assert (engine.status.prompt_computed, engine.status.prompt_reused) == (read, 50 * 203 - computed)
    assert read <= 200 + 50 * 2


def test_a_draft_model_reads_it_once_too() -> None:
    """It reads when it is first asked, and by then all have been forked."""
    target = fake(n_ctx=2048, sequences=6)
    drafter = draft_model(target, noise=1.0, rows=32)
    engine = Engine(target, [drafter], prompt_chunk=16)
    read = 0
    forward = drafter._model.forward

    def counted(work: Sequence[Work]) -> list[Rows]:
        nonlocal read
        read += sum(len(item.tree) for item in work if item.rows_from == len(item.tree))
        return forward(work)

    setattr(drafter._model, "forward", counted)  # noqa: B010
    system = [2 + (i * i) % 7 for i in range(200)]
    wishes = [request([*system, 9, 3 + i % 8], n=4) for i in range(12)]
    assert [got.told for got in together(engine, wishes)] == [cold(wish).told for wish in wishes]
    assert 150 < read <= 200 + 12 * 8


def test_two_system_prompts_do_not_push_each_other_out() -> None:
    engine = engine_of(Watched(n_ctx=2048, sequences=6), most_running=4)
    heads = [[2 + (i * i) % 7 for i in range(80)], [3 + i % 5 for i in range(90)]]
    wishes = [request([*heads[i % 2], 9, 3 + i % 8], n=3) for i in range(30)]
    outcomes = together(engine, wishes)
    assert [got.told for got in outcomes] == [cold(wish).told for wish in wishes]
    assert sum(got.finished.timings.prompt_n - got.finished.timings.cache_n for got in outcomes) <= 170 + 30 * 2


def test_what_is_shared_counts_once() -> None:
    """Eight answers with a prompt of a hundred tokens run side by side in less than two prompts' cells."""
    target = Watched(n_ctx=256, sequences=8)
    engine = engine_of(target)
    head = [2 + (i * i) % 7 for i in range(100)]
    handles = [engine.submit(request([*head, 3 + i], sampling=NO_END, n=10)) for i in range(8)]
    most = 0
    for _ in range(14):
        engine.step()
        check(engine)
        most = max(most, len(engine._requests.running))
    drain(engine, handles)
    assert most == 8


def test_who_waits_for_a_prompt_goes_on_when_its_reader_is_gone() -> None:
    engine = engine_of(fake(n_ctx=512, sequences=4))
    head = [2 + i % 5 for i in range(100)]
    first, second = (engine.submit(request([*head, last], n=5)) for last in (7, 8))
    engine.step()
    assert len(engine._requests.running) == 1
    first.cancel()
    one, two = drain(engine, [first, second])
    assert one.finished.reason == "cancelled"
    assert two.told == cold(request([*head, 8], n=5)).told


def test_a_prompt_is_read_beside_the_answers_of_others() -> None:
    target = Watched(sequences=4)
    engine = engine_of(target)
    running = engine.submit(request([2, 3], sampling=NO_END, n=40))
    for _ in range(3):
        engine.step()
    target.seen.clear()
    long = engine.submit(request([2 + (i * 3) % 8 for i in range(60)], n=3))
    while not any(isinstance(event, Tokens) for event in long.drain()):
        before = len(target.seen)
        engine.step()
        check(engine)
        assert len(target.seen) == before + 1  # one pass a step, of the target
    both = [rows for rows in target.seen if rows[0] and rows[1]]
    assert len(both) >= 7
    assert all(prompts <= 8 for _, prompts in both)  # half a chunk: the other one waits for it
    drain(engine, [running])


def test_rows_with_logits_and_rows_without_stay_apart_where_they_must() -> None:
    target = FakeTarget(FakeVocab(12), spread=2.0, sequences=4, mixes=False)
    engine = engine_of(target)
    wishes = [request([2 + i % 4] * (1 + 13 * i), n=12) for i in range(4)]
    assert [got.told for got in together(engine, wishes)] == [cold(wish).told for wish in wishes]


# Fairness


def test_nobody_starves() -> None:
    """A long one among a stream of short ones: it comes in when it is its turn, and ends."""
    engine = engine_of(fake(n_ctx=128, sequences=4), most_running=3)
    rng = random.Random(1)
    long = request([2 + i % 6 for i in range(90)], sampling=NO_END, n=20)
    handles = [engine.submit(request([3, 4], sampling=NO_END, n=8)) for _ in range(3)]
    target = engine.submit(long)
    came: list[object] = []
    for _ in range(400):
        engine.step()
        check(engine)
        came += target.drain()
        if any(isinstance(event, Finished | Failed) for event in came):
            break
        if len(engine._requests.waiting) < 4:
            handles.append(engine.submit(request([rng.randint(2, 9)] * 9, sampling=NO_END, n=8)))
    assert isinstance(came[-1], Finished)
    assert came[-1].ids == cold(long).ids


def test_prompts_are_read_side_by_side() -> None:
    """A short prompt does not wait for the end of a long one."""
    engine = engine_of(fake(n_ctx=512, sequences=4))
    long, short = (
        engine.submit(request([first] + [2 + i % 5 for i in range(n)], n=2)) for first, n in ((9, 200), (8, 20))
    )
    for _ in range(5):
        engine.step()
    assert any(isinstance(event, Finished) for event in short.drain())
    assert [event.done for event in long.drain() if isinstance(event, Prefill)][-1] < 200


def test_cancelled_work_is_gone_in_the_next_step() -> None:
    engine = engine_of(fake(sequences=4), most_running=2)
    handles = [engine.submit(request([2 + i] * 30, sampling=NO_END, n=50)) for i in range(6)]
    for _ in range(3):
        engine.step()
    for handle in handles[1:5]:
        handle.cancel()
    engine.step()
    check(engine)
    assert [one.number for one in (*engine._requests.running, *engine._requests.waiting)] == [1, 6]


# Memory


def test_a_thousand_requests_leave_nothing_behind() -> None:
    """Whatever comes and goes: conversations are as many as may be kept, and nobody remembers the others."""
    target = fake(n_ctx=256, sequences=6)
    engine = Engine(
        target, [draft_model(target, noise=1.0), ngrams()], controller=AutoController(CostCurve()), most_running=4
    )
    rng = random.Random(3)
    for _ in range(60):
        wishes = [
            request([rng.randint(2, 9) for _ in range(rng.randint(1, 30))], n=rng.randint(1, 6)) for _ in range(9)
        ]
        together(engine, wishes)
    open_ = {slot.seq for slot in engine._slots._slots}
    controller = engine.controller
    assert isinstance(controller, AutoController)
    assert len(open_) <= 6
    assert set(controller._chats) <= open_
    assert all(set(beliefs._mine) <= open_ for beliefs in controller._beliefs.values())
    assert set(engine._panel._out) <= open_
    assert set(engine._slots._prefixes._at) == open_
    assert not engine._requests.running
    assert not engine._requests.waiting


def test_conversations_that_nobody_uses_do_not_keep_guesses_small() -> None:
    target = Watched(n_ctx=160, sequences=6)
    engine = engine_of(target, most_running=1)
    for token in range(3, 8):
        together(engine, [request([token] * 24, n=8)])
    (got,) = together(engine, [request([2] * 20, sampling=NO_END, n=30, spec=SpecParams(mode="fixed", depth=4))])
    assert got.stats.drafted_steps >= got.stats.steps - 1


# Load


@pytest.mark.parametrize(("most_running", "most_waiting"), [(2, 0), (0, 3)])
def test_nothing_is_guessed_beyond_a_limit(most_running: int, most_waiting: int) -> None:
    engine = engine_of(fake(sequences=4), load=LoadGuard(most_running, most_waiting))
    wishes = [request([2 + i % 4] * 8, sampling=NO_END, n=12, spec=SpecParams(mode="fixed")) for i in range(9)]
    handles = [engine.submit(wish) for wish in wishes]
    got: list[list[object]] = [[] for _ in handles]
    while engine._requests.running or engine._requests.waiting:
        engine.step()
        status = engine.status
        assert status.guessing == (status.why == "")
        if not status.guessing:
            assert status.guesses == 0
        for events, handle in zip(got, handles, strict=True):
            events += handle.drain()
    assert engine.status.running == engine.status.waiting == 0
    finished = [events[-1] for events in got]
    assert all(isinstance(last, Finished) for last in finished)
    drafted = [last.stats.draft_n for last in finished if isinstance(last, Finished)]
    assert drafted[0] < 10  # while the others were there
    assert sum(drafted) > 0  # afterwards
    assert [last.ids for last in finished if isinstance(last, Finished)] == [cold(wish).ids for wish in wishes]


def test_the_more_run_the_less_is_guessed() -> None:
    """A row costs a tenth of a pass beside one sequence, and all of its time beside eight."""
    controller = AutoController(CostCurve({1: 1.0, 2: 1.1, 4: 1.3, 8: 2.6, 64: 21.0}))
    tree = TokenTree.chain([1, 2, 3, 4], [0.9, 0.9, 0.9], "ngram")
    guesses = []
    for n in (1, 2, 4, 8, 32):
        wishes = [Wish(seq, SpecParams(nodes=4, depth=4), Limits(4, 4), 0, {"ngram": 0}) for seq in range(n)]
        controller.plan(wishes)
        guesses.append(sum(one.draft_n for one in controller.choose(wishes, [{"ngram": tree}] * n)) / n)
    assert guesses == sorted(guesses, reverse=True)
    assert (guesses[0], guesses[-1]) == (3, 0)


def test_rows_of_prompts_make_guesses_dear() -> None:
    """What pays its row alone need not pay the one on top of a prompt's."""
    controller = AutoController(CostCurve({1: 1.0, 2: 1.1, 4: 1.3, 8: 2.6, 64: 20.8}))
    tree = TokenTree.chain([1, 2], [0.03], "ngram")
    wish = Wish(0, SpecParams(nodes=4, depth=4), Limits(4, 4), 0, {"ngram": 0})
    for beside, guesses in ((0, 1), (64, 0)):
        controller.plan([wish], beside)
        (chosen,) = controller.choose([wish], [{"ngram": tree}])
        assert chosen.draft_n == guesses
