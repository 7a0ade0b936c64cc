"""Engines over fake models, drafters that guess by script, and what a run brought."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from localspec.backends.base import Rows, Target
from localspec.backends.fake import FakeTarget, FakeVocab
from localspec.drafters.base import Ask, Draft, Drafter, Features
from localspec.drafters.draft_model import DraftModel
from localspec.drafters.ngram import NgramSimple
from localspec.drafters.options import NgramOptions
from localspec.drafters.translated import TranslatedModel
from localspec.engine import Engine, Handle
from localspec.spec.tree import TokenTree
from localspec.types import (
    Event,
    Failed,
    Finished,
    GenerationRequest,
    Notice,
    SamplingParams,
    SpecParams,
    SpecStats,
    Started,
    StepStats,
    TokenInfo,
    Tokens,
)
from localspec.vocab import Vocab, pair

GREEDY = SamplingParams(temperature=0.0, seed=1)
Script = Callable[[Ask], TokenTree]


class Scripted:
    """Guesses what its script says. ``seen`` are the paths that stood, by verified step."""

    costs_passes = False

    def __init__(self, script: Script, *, name: str = "scripted", needs: tuple[int, ...] = ()) -> None:
        self.name = name
        self.needs = needs
        self.script = script
        self.seen: list[tuple[TokenTree, tuple[int, ...]]] = []
        self.read: dict[int, int] = {}

    def open(self, seq: int) -> None:
        self.read[seq] = 0

    def fork(self, seq: int, new: int, n: int) -> None:
        self.read[new] = min(self.read[seq], n)

    def close(self, seq: int) -> None:
        del self.read[seq]

    def prefill(self, seq: int, start: int, tokens: Sequence[int], features: Features) -> None:
        self.read[seq] += len(tokens)

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return [Draft(self.script(ask)) for ask in asks]

    def observe(self, seq: int, start: int, tree: TokenTree, path: Sequence[int], rows: Rows) -> None:
        self.seen.append((tree, tuple(path)))
        self.read[seq] += 1 + len(path)

    def truncate(self, seq: int, n: int) -> None:
        self.read[seq] = min(self.read[seq], n)

    def lag(self, seq: int, n_past: int) -> int:
        return n_past - self.read[seq]

    def gap(self, seq: int, n_past: int) -> int:
        return self.lag(seq, n_past) if self.needs else 0

    def interrupt(self, on: bool) -> None:
        pass

    def set_threads(self, n: int) -> None:
        pass

    def close_all(self) -> None:
        self.read.clear()


class Gapless(FakeTarget):
    """Keeps nothing behind a rejected node, like a cache whose cells have to lie in order. ``repairs`` counts how often
    that cost something."""

    repairs = 0

    def commit(self, seq: int, path: Sequence[int]) -> None:
        kept = [node for place, node in enumerate(path) if node == place]
        self.repairs += len(kept) < len(path)
        super().commit(seq, kept)


def oracle(text: Sequence[int], *, wrong_after: int | None = None, n_vocab: int = 0) -> Script:
    """Guesses the rest of ``text``; from the ``wrong_after``-th guess on, something else."""

    def script(ask: Ask) -> TokenTree:
        at, depth = len(ask.tokens), ask.price.limits.depth
        guess = list(text[at : at + depth])[: ask.price.limits.nodes]
        if wrong_after is not None:
            guess[wrong_after:] = [(token + 1) % n_vocab for token in guess[wrong_after:]]
        return TokenTree.chain([ask.tokens[-1], *guess], source="scripted")

    return script


def nothing(ask: Ask) -> TokenTree:
    return TokenTree.root(ask.tokens[-1])


@dataclass(frozen=True)
class Outcome:
    """One answer, by its events."""

    events: tuple[Event, ...]

    @property
    def last(self) -> Finished | Failed:
        last = self.events[-1]
        assert isinstance(last, Finished | Failed)
        return last

    @property
    def finished(self) -> Finished:
        assert isinstance(self.last, Finished), self.last
        return self.last

    @property
    def failed(self) -> Failed:
        assert isinstance(self.last, Failed), self.last
        return self.last

    @property
    def ids(self) -> tuple[int, ...]:
        return self.finished.ids

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, Tokens))

    @property
    def infos(self) -> tuple[TokenInfo, ...]:
        return tuple(info for event in self.events if isinstance(event, Tokens) for info in event.tokens)

    @property
    def steps(self) -> tuple[StepStats, ...]:
        return tuple(event.step for event in self.events if isinstance(event, Tokens) and event.step)

    @property
    def stats(self) -> SpecStats:
        return self.finished.stats

    @property
    def started(self) -> Started:
        return next(event for event in self.events if isinstance(event, Started))

    @property
    def notices(self) -> tuple[str, ...]:
        return tuple(event.text for event in self.events if isinstance(event, Notice))

    @property
    def told(self) -> tuple[object, ...]:
        """All that must not depend on who guessed."""
        facts = tuple((i.id, i.piece, i.target_p, i.logprob, i.top) for i in self.infos)
        return self.text, self.ids, self.finished.reason, self.finished.stop, facts


def request(
    tokens: Iterable[int],
    *,
    sampling: SamplingParams = GREEDY,
    spec: SpecParams | None = None,
    n: int = -1,
    stop: tuple[str, ...] = (),
    logprobs: int | None = None,
) -> GenerationRequest:
    return GenerationRequest(
        tokens=tuple(tokens),
        sampling=sampling,
        spec=spec or SpecParams(),
        max_tokens=n,
        stop=stop,
        logprobs=logprobs,
    )


def plain(wish: GenerationRequest) -> GenerationRequest:
    """The same request without speculation."""
    return replace(wish, spec=SpecParams(depth=0))


def answer(engine: Engine, wish: GenerationRequest) -> Outcome:
    """One answer, the cache checked after every step."""
    return together(engine, [wish])[0]


def together(engine: Engine, wishes: Sequence[GenerationRequest]) -> list[Outcome]:
    """All answers at once, the cache checked after every step."""
    return drain(engine, [engine.submit(wish) for wish in wishes])


def check(engine: Engine) -> None:
    """What holds between steps: caches hold committed tokens and nothing else."""
    target = engine.target
    assert isinstance(target, FakeTarget)
    slots = engine._slots._slots
    assert set(target._cells) == {slot.seq for slot in slots}
    assert not target._trees
    assert target.cells_used <= target.caps.n_ctx
    for slot in slots:
        cells = target.tokens(slot.seq)
        assert slot.tokens[: len(cells)] == cells
    running = engine._requests.running
    assert [slot for slot in slots if slot.busy] == sorted((answer.slot for answer in running), key=slots.index)
    for one in running:
        text = one.prompt + one.ids
        assert one.slot.tokens == text
        assert len(target.tokens(one.slot.seq)) < len(text)
        # An answer that made room for others reads its own text again, and so does one that may keep no gap.
        made_room = target.caps.n_ctx < 128 or one.request.steps is not None
        reads_again = made_room or isinstance(target, Gapless)
        assert not one.ids or reads_again or target.tokens(one.slot.seq) == text[:-1]
    for drafter in engine._panel._drafters:
        if isinstance(drafter, DraftModel):
            _check_draft_model(engine, drafter)


def in_plain(tokens: Sequence[int], vocab: Vocab, names: Collection[int]) -> str:
    """What ``tokens`` spell; a character ends at those of ``names``."""
    runs = [b""]
    for token in tokens:
        if token in names:
            runs.append(b"")
        else:
            runs[-1] += vocab.piece(token)
    return "".join(run.decode("utf-8", "replace") for run in runs)


def _is_read(drafter: DraftModel, seq: int, cells: Sequence[int], text: Sequence[int]) -> bool:
    """Whether ``cells`` are the beginning of ``text``, in the draft model's own words."""
    if not isinstance(drafter, TranslatedModel):
        return drafter._pairing.readable(text[: len(cells)]) == list(cells)
    between = drafter._translation
    read = in_plain(cells, between._draft, between._names.values()).rstrip("\ufffd")
    whole = in_plain(text, between._target, between._names)
    return drafter._read[seq].cells == list(cells) and whole.startswith(read)


def _check_draft_model(engine: Engine, drafter: DraftModel) -> None:
    model = drafter._model
    assert isinstance(model, FakeTarget)
    assert not model._trees
    assert set(drafter._lanes) == {slot.seq for slot in engine._slots._slots}
    assert set(model._cells) == set(drafter._lanes.values())
    for slot in engine._slots._slots:
        cells = model.tokens(drafter._lanes[slot.seq])
        assert _is_read(drafter, slot.seq, cells, slot.tokens)


def drain(
    engine: Engine,
    handles: Sequence[Handle],
    check: Callable[[Engine], None] = check,
    *,
    limit: int = 2000,
) -> list[Outcome]:
    """What all handles bring; ``check`` sees the engine after every step."""
    got: list[list[Event]] = [[] for _ in handles]
    for _ in range(limit):
        engine.step()
        check(engine)
        for events, handle in zip(got, handles, strict=True):
            events += handle.drain()
        if all(events and isinstance(events[-1], Finished | Failed) for events in got):
            return [Outcome(tuple(events)) for events in got]
    raise AssertionError("an answer never ended")


def draft_model(
    target: FakeTarget,
    *,
    seed: int = 0,
    spread: float = 2.0,
    noise: float = 0.0,
    n_ctx: int | None = None,
    rows: int = 64,
    leaves: int = 32,
) -> DraftModel:
    """The table of ``fake`` with ``noise``, as a draft model for ``target``."""
    caps = target.caps
    model = FakeTarget(
        target.vocab,
        seed=seed,
        spread=spread,
        noise=noise,
        n_ctx=n_ctx or caps.n_ctx,
        sequences=caps.max_sequences,
        rows=rows,
        leaves=leaves,
    )
    pairing = pair(target.vocab, target.vocab)
    assert pairing is not None
    return DraftModel(model, pairing)


def fake(
    n_vocab: int = 12,
    *,
    seed: int = 0,
    n_ctx: int = 512,
    sequences: int = 4,
    rows: int = 64,
    leaves: int = 32,
    trees: bool = True,
    rollback: int | None = None,
    layers: frozenset[int] = frozenset(),
) -> FakeTarget:
    return FakeTarget(
        FakeVocab(n_vocab),
        seed=seed,
        spread=2.0,
        n_ctx=n_ctx,
        sequences=sequences,
        rows=rows,
        leaves=leaves,
        trees=trees,
        rollback=rollback,
        layers=layers,
    )


def ngrams(n: int = 2) -> NgramSimple:
    return NgramSimple(NgramOptions(size_n=n))


def alone(target: Target, wish: GenerationRequest, drafters: Sequence[Drafter] = ()) -> Outcome:
    return answer(Engine(target, drafters, prompt_chunk=16), wish)
