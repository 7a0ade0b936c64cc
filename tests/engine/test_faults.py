"""Faults of models, drafters and requests stay with whom they belong to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from localspec.backends.base import Row, Rows, Work
from localspec.backends.fake import FakeTarget, FakeVocab
from localspec.drafters.base import Ask, Draft, Features
from localspec.drafters.draft_model import DraftModel
from localspec.engine import Engine
from localspec.errors import Cancelled, DecodeError, EngineError, LocalspecError, ModelError, OutOfMemory, UsageError
from localspec.sampling import Law
from localspec.spec.tree import TokenTree
from localspec.types import Event, Finished, GenerationRequest, Message, SamplingParams, SpecParams
from localspec.vocab import pair
from tests.engine.support import (
    Scripted,
    alone,
    answer,
    check,
    draft_model,
    drain,
    fake,
    ngrams,
    nothing,
    plain,
    request,
    together,
)

PROMPT = (3, 4, 5)
NO_END = SamplingParams(temperature=0.0, ignore_eos=True)
WISH = request(PROMPT, sampling=NO_END, n=20)
WANTED = alone(fake(), plain(WISH))


class Rotten(FakeTarget):
    """Scores of texts that hold ``token`` in their last place are NaN once ``passes`` reaches ``at``."""

    def __init__(self, token: int, at: int = 0) -> None:
        super().__init__(FakeVocab(12), spread=2.0)
        self.token, self.at = token, at

    def scores(self, text: Sequence[int]) -> Row:
        row = super().scores(text)
        return np.full_like(row, np.nan) if text[-1] == self.token and self.passes >= self.at else row


class Failing(FakeTarget):
    """One pass raises."""

    def __init__(self, error: LocalspecError, at: int) -> None:
        super().__init__(FakeVocab(12), spread=2.0)
        self.error, self.at = error, at

    def forward(self, work: Sequence[Work]) -> list[Rows]:
        if self.passes == self.at:
            self.passes += 1
            for item in work:
                self._trees.pop(item.seq, None)
            raise self.error
        return super().forward(work)


def never(*tokens: int) -> SamplingParams:
    return SamplingParams(temperature=0.0, ignore_eos=True, logit_bias=tuple((t, float("-inf")) for t in tokens))


@pytest.mark.parametrize("at", [0, 3, 5])
def test_nan_scores_end_that_answer_only(at: int) -> None:
    bad = request([3, 7], sampling=SamplingParams(temperature=0, logit_bias=((7, 99.0),)), n=20)
    good = request(PROMPT, sampling=never(7), n=20)
    engine = Engine(Rotten(7, at), [ngrams()])
    for wishes in ([bad, good], [good, bad], [bad, good, good]):
        for wish, got in zip(wishes, together(engine, wishes), strict=True):
            if wish is bad:
                assert (got.failed.kind, got.failed.exit_code) == ("ModelFault", 3)
                assert got.failed.hint
            else:
                assert got.told == alone(fake(), plain(good)).told


@pytest.mark.parametrize("at", range(6))
@pytest.mark.parametrize("sampling", [NO_END, SamplingParams(temperature=0.9, ignore_eos=True, seed=1)])
def test_nan_scores_of_a_draft_model_pause_it(at: int, sampling: SamplingParams) -> None:
    model = Rotten(9, at)
    target = fake()
    pairing = pair(target.vocab, model.vocab)
    assert pairing is not None
    engine = Engine(target, [DraftModel(model, pairing)])
    wishes = [
        request([2, 9], sampling=sampling, n=20, spec=SpecParams(depth=3, width=2)),
        request(PROMPT, sampling=sampling, n=20),
    ]
    for _ in range(2):
        for wish, got in zip(wishes, together(engine, wishes), strict=True):
            assert got.told == alone(fake(), plain(wish)).told
            assert len(got.notices) <= 1
            assert all("draft-simple is paused: " in line and "NaN" in line for line in got.notices)


@pytest.mark.parametrize("at", range(5))
def test_a_pass_that_fails_ends_its_answers(at: int) -> None:
    """In the prompt or in the answer; the queue goes on."""
    engine = Engine(Failing(DecodeError("broken"), at), [ngrams()], prompt_chunk=1)
    first, second = engine.submit(WISH), engine.submit(WISH)
    one, two = drain(engine, [first, second])
    assert one.failed.kind == "DecodeError"
    assert one.failed.message == "broken"
    assert two.failed.kind == "DecodeError"
    assert answer(engine, WISH).told == WANTED.told


def test_no_room_for_a_tree_is_no_end() -> None:
    """Where the cache has less room than it seems, the pending token goes alone."""

    class Tight(FakeTarget):
        def forward(self, work: Sequence[Work]) -> list[Rows]:
            if any(item.tree.draft_n and item.rows_from == 0 for item in work):
                raise OutOfMemory("tight")
            return super().forward(work)

    target = Tight(FakeVocab(12), spread=2.0)
    got = alone(target, WISH, [draft_model(target), ngrams()])
    assert got.told == WANTED.told
    assert got.stats.draft_n == 0


class Unwell(Scripted):
    """Raises in one of its methods, once."""

    def __init__(self, where: str, error: Exception, script: Callable[[Ask], TokenTree] = nothing) -> None:
        super().__init__(script, name="unwell")
        self.where, self.error = where, error
        self.calls = 0

    def _raise(self, where: str) -> None:
        if where == self.where:
            self.calls += 1
            if self.calls == 2:
                raise self.error

    def prefill(self, seq: int, start: int, tokens: Sequence[int], features: Features) -> None:
        self._raise("prefill")

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        self._raise("propose")
        return super().propose(asks)

    def observe(self, seq: int, start: int, tree: TokenTree, path: Sequence[int], rows: Rows) -> None:
        self._raise("observe")


@pytest.mark.parametrize("where", ["prefill", "propose", "observe"])
@pytest.mark.parametrize("error", [ValueError("oh"), EngineError("oh", hint="rest")])
def test_a_drafter_that_raises_is_paused_with_one_line(where: str, error: Exception) -> None:
    drafter = Unwell(where, error)
    engine = Engine(fake(), [drafter, ngrams()], prompt_chunk=1)
    got = answer(engine, WISH)
    assert got.told == WANTED.told
    (line,) = got.notices
    assert line == f"unwell is paused: {'oh' if isinstance(error, EngineError) else 'ValueError: oh'}"
    asked = drafter.calls
    assert asked == 2
    again = answer(engine, request((*PROMPT, *got.ids, 2, 2, 2), sampling=NO_END, n=20))
    assert not again.notices
    assert drafter.calls > asked  # it is back with the next prompt


@pytest.mark.parametrize("where", ["prefill", "observe"])
def test_a_drafter_interrupted_while_it_takes_in_is_paused(where: str) -> None:
    """The target has read on: going back would repeat tokens."""
    engine = Engine(fake(), [Unwell(where, Cancelled("stopped")), ngrams()], prompt_chunk=1)
    got = answer(engine, WISH)
    assert got.told == WANTED.told
    assert got.notices == ("unwell is paused: stopped",)


def test_a_drafter_interrupted_while_it_guesses_is_asked_again() -> None:
    got = alone(fake(), WISH, [Unwell("propose", Cancelled("stopped"))])
    assert got.told == WANTED.told
    assert not got.notices


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (lambda ask: TokenTree.chain([11, 3, 4]), "not pending"),
        (lambda ask: TokenTree.chain([11]), "not pending"),
    ],
)
def test_guesses_over_another_token_are_no_guesses(script: Callable[[Ask], TokenTree], says: str) -> None:
    got = alone(fake(), WISH, [Scripted(script)])
    assert got.told == WANTED.told
    assert len(got.notices) == 1
    assert says in got.notices[0]


def test_drawn_guesses_beyond_the_limits_are_no_guesses() -> None:
    """They cannot be cut: which ones stay would depend on what they are."""

    class Drawing(Scripted):
        def propose(self, asks: Sequence[Ask]) -> list[Draft]:
            return [Draft(TokenTree.chain([ask.tokens[-1], *[3] * 9]), {0: Law.certain(3)}) for ask in asks]

    spec = SpecParams(depth=2, accept="ratio")
    got = alone(fake(), request(PROMPT, sampling=NO_END, spec=spec, n=20), [Drawing(nothing)])
    assert got.ids == WANTED.ids
    assert len(got.notices) == 1
    assert "more guesses were drawn" in got.notices[0]


def test_a_drafter_with_a_shorter_context_is_paused_with_one_line() -> None:
    target = fake()
    drafter = draft_model(target, n_ctx=16)
    engine = Engine(target, [drafter])
    for _ in range(3):
        got = answer(engine, WISH)
        assert got.told == WANTED.told
        assert got.notices == ("draft-simple is paused: the draft model's context of 16 tokens is full",)
        assert got.stats.accepted > 5
    short = request([7, 8], sampling=NO_END, n=10)
    got = answer(engine, short)
    assert not got.notices
    assert got.stats.alpha == 1.0


@pytest.mark.parametrize("prompt", [(2,), (2, 3, 4, 5)], ids=["the slot is taken over", "the slot is idle"])
def test_a_notice_of_an_answer_that_left_is_not_another_s(prompt: tuple[int, ...]) -> None:
    """A drafter fails for one answer, the step is given up, the answer is cancelled: nobody trips over the line."""
    asked = 0

    def fail(ask: Ask) -> TokenTree:
        raise ValueError("oh")

    def stop(ask: Ask) -> TokenTree:
        nonlocal asked
        asked += 1
        if asked == 1:
            first.cancel()
            raise Cancelled("stopped")
        return nothing(ask)

    engine = Engine(fake(), [Scripted(fail, name="failing"), Scripted(stop, name="stopping")])
    first = engine.submit(request(prompt, n=9))
    engine.step()
    second = engine.submit(WISH)
    one, two = drain(engine, [first, second])
    assert one.finished.reason == "cancelled"
    assert two.told == WANTED.told
    assert two.notices == ("failing is paused: ValueError: oh",)  # its own, once


class Reader(Scripted):
    """Needs hidden states 0 and 1 of every token: in the fake, which token it is and which came before."""

    def __init__(self, script: Callable[[Ask], TokenTree] = nothing) -> None:
        super().__init__(script, name="reader", needs=(0, 1))
        self.text: dict[int, list[int]] = {}
        self.rejected = 0

    def open(self, seq: int) -> None:
        super().open(seq)
        self.text[seq] = []

    def fork(self, seq: int, new: int, n: int) -> None:
        super().fork(seq, new, n)
        self.text[new] = self.text[seq][:n]

    def truncate(self, seq: int, n: int) -> None:
        super().truncate(seq, n)
        del self.text[seq][n:]

    def _reads(self, text: list[int], features: Features, row: int) -> None:
        assert np.argmax(features[0][row]) == text[-1]
        assert features[0][row].sum() == 1
        assert features[1][row].sum() == (len(text) > 1)
        if len(text) > 1:
            assert np.argmax(features[1][row]) == text[-2]

    def prefill(self, seq: int, start: int, tokens: Sequence[int], features: Features) -> None:
        super().prefill(seq, start, tokens, features)
        assert len(features[0]) == len(features[1]) == len(tokens)
        for row, token in enumerate(tokens):
            self.text[seq].append(token)
            self._reads(self.text[seq], features, row)

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        for ask in asks:
            assert self.text[ask.seq] == ask.tokens[:-1]
            assert self.lag(ask.seq, len(ask.tokens) - 1) == 0
        return super().propose(asks)

    def observe(self, seq: int, start: int, tree: TokenTree, path: Sequence[int], rows: Rows) -> None:
        super().observe(seq, start, tree, path, rows)
        features = rows.features
        assert len(features[0]) == len(tree)
        for node in range(len(tree)):
            self._reads(self.text[seq] + [tree.tokens[i] for i in tree.path(node)], features, node)
            assert rows.logits(node).shape == (12,)
        self.rejected += len(tree) - 1 - len(path)
        self.text[seq] += [tree.tokens[0], *(tree.tokens[node] for node in path)]


def test_hidden_states_that_were_missed_come_again_with_the_next_prompt() -> None:
    """A paused reader is shown nothing; it cannot read by itself, so the target reads for it once more."""
    failed = False

    def once(ask: Ask) -> TokenTree:
        nonlocal failed
        if not failed:
            failed = True
            raise ValueError("oh")
        return nothing(ask)

    reader = Reader(once)
    engine = Engine(fake(layers=frozenset({0, 1})), [reader], prompt_chunk=7)
    first = answer(engine, request((2, 3, 4, 5), sampling=NO_END, n=12))
    assert first.notices
    later = request((2, 3, 4, 5, *first.ids, 6), sampling=NO_END, n=12)
    got = answer(engine, later)
    assert not got.notices  # `Reader.propose` checks that it has read every token
    assert got.told == alone(fake(), plain(later)).told
    assert got.started.cache_n <= 4


def test_a_reader_of_layers_that_the_target_does_not_give_is_refused() -> None:
    with pytest.raises(UsageError, match="layer 0"):
        Engine(fake(), [Reader()])


def test_hidden_states_arrive_for_the_right_tokens_in_order() -> None:
    def wide(ask: Ask) -> TokenTree:
        last = ask.tokens[-1]
        tokens = [last, *range(1, 9), *range(1, 9)]
        return TokenTree(tuple(tokens), (-1, *[0] * 8, *[4] * 8), (1.0,) * 17, ("",) + ("reader",) * 16)

    target = fake(layers=frozenset({0, 1}))
    reader = Reader(wide)
    engine = Engine(target, [reader, ngrams()], prompt_chunk=7)
    spec = SpecParams(width=9, nodes=20)
    text: tuple[int, ...] = tuple(2 + i % 6 for i in range(30))
    for stop in ((), ("a",), ("b", "cd")):
        wish = request(text, sampling=NO_END, n=25, spec=spec, stop=stop)
        got = answer(engine, wish)
        assert got.told == alone(fake(), plain(wish)).told
        assert not got.notices
        text = (*text, *got.ids, 5)
    assert reader.rejected > 50
    wishes = [request((*text[:20], token), sampling=NO_END, n=10, spec=spec) for token in (3, 4, 5)]
    for got in together(engine, wishes):
        assert not got.notices


@pytest.mark.parametrize(
    ("wish", "says"),
    [
        (GenerationRequest(prompt=""), "empty"),
        (GenerationRequest(tokens=()), "empty"),
        (GenerationRequest(prompt="a" * 65), "65 tokens, the context holds 64"),
        (GenerationRequest(tokens=(2,) * 65), "65 tokens"),
        (GenerationRequest(tokens=(2, 12)), "token 12"),
        (GenerationRequest(tokens=(-1,)), "token -1"),
        (GenerationRequest(prompt="a", spec=SpecParams(types=("eagle3",))), "eagle3 is not loaded"),
        (GenerationRequest(messages=(Message("user", "a"),)), "no chat template"),
        (GenerationRequest(prompt="a", sampling=SamplingParams(top_p=-1)), "top_p"),
        (GenerationRequest(prompt="a", sampling=SamplingParams(logit_bias=((12, 1.0),))), "logit_bias"),
    ],
)
def test_requests_that_cannot_be_honoured_are_refused(wish: GenerationRequest, says: str) -> None:
    engine = Engine(fake(n_ctx=64), [ngrams()])
    running = engine.submit(WISH)
    engine.step()
    with pytest.raises((UsageError, ModelError), match=says) as error:
        engine.submit(wish)
    assert error.value.hint
    (got,) = drain(engine, [running])
    assert got.told == WANTED.told
    assert answer(engine, WISH).told == WANTED.told
    check(engine)


def test_a_request_that_bans_every_token_fails_alone() -> None:
    banned = request(PROMPT, sampling=never(*range(12)), n=5)
    one, two = together(Engine(fake(), [ngrams()]), [banned, WISH])
    assert one.failed.kind == "UsageError"
    assert two.told == WANTED.told


@pytest.mark.parametrize("n", [1, 2, 7])
def test_nothing_comes_after_the_end(n: int) -> None:
    """A drafter that fails in the last step of an answer has nobody to tell."""

    class Failing(Scripted):
        def observe(self, seq: int, start: int, tree: TokenTree, path: Sequence[int], rows: Rows) -> None:
            if start >= n:  # the last of the steps, which bring a token each
                raise RuntimeError("late")

    engine = Engine(fake(), [Failing(nothing)])
    handle = engine.submit(request([3], sampling=NO_END, n=n + 1))
    events: list[Event] = []
    for _ in range(n + 3):
        engine.step()
        events += handle.drain()
    assert isinstance(events[-1], Finished)
