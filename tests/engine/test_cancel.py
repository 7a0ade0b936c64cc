"""E06, E11: whatever is given up, and when, the next answer is a cold one's equal and no cell is lost."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence

import pytest

from localspec.backends.base import Rows, Work
from localspec.backends.fake import FakeTarget, FakeVocab
from localspec.drafters.base import Ask
from localspec.drafters.draft_model import DraftModel
from localspec.drafters.suffix import Suffix
from localspec.engine import Engine
from localspec.spec.tree import TokenTree
from localspec.types import Finished, SamplingParams, SpecParams, Tokens
from localspec.vocab import pair
from tests.engine.support import (
    Outcome,
    Scripted,
    answer,
    check,
    draft_model,
    drain,
    fake,
    ngrams,
    nothing,
    plain,
    request,
)

NO_END = SamplingParams(temperature=0.8, ignore_eos=True, seed=3)
LONG = request([2 + i % 5 for i in range(40)], sampling=NO_END, n=30, spec=SpecParams(depth=3, width=2))
PROBE = request([2 + i % 5 for i in range(30)] + [9], sampling=NO_END, n=25, spec=SpecParams(depth=4))
COLD = answer(Engine(fake()), plain(PROBE))


def engine_of(*, sequences: int = 2) -> Engine:
    target = fake(n_ctx=256, sequences=sequences)
    return Engine(target, [draft_model(target, noise=1.0), ngrams(), Suffix()], prompt_chunk=8)


def probe(engine: Engine) -> Outcome:
    got = answer(engine, PROBE)
    assert got.told == COLD.told
    assert not got.notices
    return got


@pytest.mark.parametrize("steps", range(22))
def test_cancelled_after_any_step(steps: int) -> None:
    """In the queue, in the prompt, in the answer, after the end."""
    engine = engine_of()
    whole = answer(Engine(fake()), plain(LONG))
    handle = engine.submit(LONG)
    for _ in range(steps):
        engine.step()
    handle.cancel()
    (got,) = drain(engine, [handle])
    assert got.finished.reason in ("cancelled", "length")
    assert whole.ids[: len(got.ids)] == got.ids
    assert tuple(info.id for info in got.infos) == got.ids
    assert whole.text.startswith(got.text)
    probe(engine)


class Interrupting(FakeTarget):
    """Cancels a request in the middle of one of its passes, as another thread would."""

    def __init__(self, at: int) -> None:
        super().__init__(FakeVocab(12), spread=2.0, n_ctx=256)
        self.at = at
        self.victim: threading.Thread | None = None

    def forward(self, work: Sequence[Work]) -> list[Rows]:
        if self.passes == self.at and self.victim is not None:
            self.victim.start()
            self.victim.join()
        return super().forward(work)


@pytest.mark.parametrize("at", range(16))
@pytest.mark.parametrize("where", ["target", "draft"])
def test_cancelled_within_any_pass(where: str, at: int) -> None:
    """The pass gives up; of two answers the other one goes on as if nothing had been."""
    target, model = Interrupting(-1), Interrupting(-1)
    pairing = pair(target.vocab, model.vocab)
    assert pairing is not None
    engine = Engine(target, [DraftModel(model, pairing)], prompt_chunk=8)
    ours, other = engine.submit(LONG), engine.submit(PROBE)
    culprit = target if where == "target" else model
    culprit.at, culprit.victim = at, threading.Thread(target=ours.cancel)
    first, second = drain(engine, [ours, other])
    assert first.finished.reason == "cancelled"
    assert second.told == COLD.told
    assert not second.notices
    probe(engine)


def test_a_cancelled_request_in_the_queue_never_runs() -> None:
    engine = engine_of(sequences=1)
    running, queued, last = engine.submit(LONG), engine.submit(LONG), engine.submit(PROBE)
    engine.step()
    queued.cancel()
    one, two, three = drain(engine, [running, queued, last])
    assert one.finished.reason == "length"
    assert (two.finished.reason, two.ids, len(two.events)) == ("cancelled", (), 1)
    assert three.told == COLD.told


def test_leaving_the_loop_cancels() -> None:
    engine = engine_of()
    for event in engine.submit(LONG):
        if isinstance(event, Tokens) and event.tokens:
            break
    probe(engine)
    assert not engine._requests.running


def test_an_exception_in_the_consumer_cancels() -> None:
    engine = engine_of()

    def consume() -> None:
        for event in engine.submit(LONG):
            if isinstance(event, Tokens):
                raise RuntimeError("the reader is gone")

    with pytest.raises(RuntimeError, match="reader"):
        consume()
    probe(engine)
    assert not engine._requests.running


def test_fifty_interruptions_then_a_probe() -> None:
    """E06: acceptance of the probe is what it was; no cell and no sequence was lost on the way."""
    rng = random.Random(0)
    engine = engine_of()
    before = probe(engine)
    for _ in range(50):
        handles = [engine.submit(rng.choice((LONG, PROBE))) for _ in range(rng.randint(1, 3))]
        for _ in range(rng.randint(0, 14)):
            engine.step()
            check(engine)
        for handle in handles:
            handle.cancel()
        drain(engine, handles)
    after = probe(engine)
    assert after.stats.acceptance == before.stats.acceptance


def test_cancelling_twice_or_after_the_end_does_nothing() -> None:
    engine = engine_of()
    handle = engine.submit(LONG)
    handle.cancel()
    handle.cancel()
    drain(engine, [handle])
    handle.cancel()
    probe(engine)


def test_cancelling_from_a_thread_that_does_not_wait() -> None:
    """A race with no fixed outcome but this: the answer ends, and the next one is right."""
    for delay in (0.0, 0.0005, 0.002):
        engine = engine_of()
        handle = engine.submit(LONG)
        timer = threading.Timer(delay, handle.cancel)
        timer.start()
        *_, last = handle
        assert isinstance(last, Finished)
        timer.join()
        probe(engine)


def test_an_interrupt_of_the_program_ends_what_runs() -> None:
    """Ctrl-C between the passes of a step: running answers fail, the engine goes on."""
    pressed = iter([False, False, True])

    def script(ask: Ask) -> TokenTree:
        if next(pressed, False):
            raise KeyboardInterrupt
        return nothing(ask)

    engine = Engine(fake(), [Scripted(script)])
    handle = engine.submit(LONG)
    with pytest.raises(KeyboardInterrupt):
        drain(engine, [handle])
    check(engine)
    (got,) = drain(engine, [handle])
    assert got.failed.kind == "EngineError"
    probe(engine)


def test_a_handle_that_has_ended_has_no_more_events() -> None:
    engine = engine_of()
    handle = engine.submit(PROBE)
    assert isinstance(list(handle)[-1], Finished)
    assert list(handle) == []
    drained = engine.submit(PROBE)
    assert isinstance(drain(engine, [drained])[0].last, Finished)
    assert list(drained) == []
