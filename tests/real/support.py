"""Engines over real files, in settings where rounding is small, and what must hold in their caches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from localspec.backends.base import Row, Target, Work
from localspec.backends.chained import ChainedHead
from localspec.backends.llamacpp import LlamaModel, LlamaOptions, LlamaTarget, Native
from localspec.drafters.draft_model import DraftModel
from localspec.engine import Engine
from localspec.engine.breakers import breakers
from localspec.grammar import Grammars
from localspec.loading import EngineOptions, ModelOptions, load
from localspec.sampling import SamplerState
from localspec.spec.tree import TokenTree
from localspec.types import GenerationRequest, SamplingParams, SpecParams
from localspec.vocab import Vocab
from tests.engine.support import Outcome, drain

PLAIN = SpecParams(depth=0)
CHAIN = SpecParams(depth=4, nodes=4, mode="fixed")
TREE = SpecParams(depth=4, nodes=12, width=3, mode="fixed")
GREEDY = SamplingParams(temperature=0.0, seed=1)

#: Logits of one text, decoded in another grouping of rows, differ by less than 1e-4 here (3e-5 measured, F32 weights,
#: F32 cache, no flash attention; the default F16 cache alone makes it 1e-2). Two tokens closer than this may change
#: places. Gaps of a wrong mask or a wrong position are of the order of 1.
NEAR_TIE = 1e-3


def exact_options(target: Path, draft: Path | None = None, **changes: Any) -> EngineOptions:
    """One thread, so that sums have one order; caches in F32, so that keys are not rounded."""

    def model(path: Path) -> ModelOptions:
        return ModelOptions(path, threads=1, threads_batch=1, cache_type_k="f32", cache_type_v="f32")

    options = EngineOptions(
        model(target),
        draft=None if draft is None else model(draft),
        spec_types=None if draft is None else ("draft-simple",),
        n_ctx=512,
        n_batch=256,
        n_ubatch=256,
        flash_attn="off",
        measure=False,
    )
    return replace(options, **changes)


@contextmanager
def running(target: Path, draft: Path | None = None, **changes: Any) -> Iterator[Engine]:
    with load(exact_options(target, draft, **changes)) as engine:
        yield engine


@contextmanager
def opened(path: Path, **changes: Any) -> Iterator[LlamaTarget]:
    """A target without an engine around it, in the same settings."""
    options = LlamaOptions(
        path,
        n_ctx=512,
        n_batch=256,
        n_ubatch=256,
        threads=1,
        threads_batch=1,
        flash_attn="off",
        cache_type_k="f32",
        cache_type_v="f32",
        branches=15,
        outputs=32,
    )
    options = replace(options, **changes)
    target = LlamaTarget(LlamaModel(Native(), options), options)
    try:
        yield target
    finally:
        target.close_all()


def read(target: LlamaTarget, seq: int, tokens: Sequence[int], chunk: int = 64) -> None:
    """Reads ``tokens`` into the cache."""
    for start in range(0, len(tokens), chunk):
        piece = tokens[start : start + chunk]
        target.forward([Work.prompt(seq, piece)])
        target.commit(seq, range(len(piece)))


def step(target: LlamaTarget, seq: int, token: int) -> Row:
    """Decodes one token; a copy of its row."""
    row = target.forward([Work(seq, TokenTree.root(token))])[0].logits(0).copy()
    target.commit(seq, (0,))
    return row


def fresh_row(target: LlamaTarget, tokens: Sequence[int]) -> Row:
    """The row after ``tokens``, read into a sequence of their own."""
    seq = target.open()
    read(target, seq, tokens[:-1])
    row = step(target, seq, tokens[-1])
    target.close(seq)
    return row


def answer(engine: Engine, wish: GenerationRequest) -> Outcome:
    return together(engine, [wish])[0]


def together(engine: Engine, wishes: Sequence[GenerationRequest], *, limit: int = 4000) -> list[Outcome]:
    """All answers at once, the caches checked after every step."""
    outcomes = drain(engine, [engine.submit(wish) for wish in wishes], check, limit=limit)
    # A drafter that fails is only paused: without this its faults would pass for poor guesses.
    assert not [line for one in outcomes for line in one.notices if "Error" in line]
    return outcomes


def check_all_ways(guessing: Engine, plain: EngineOptions, text: Sequence[int], *, drafted: int) -> None:
    """Answers to ``text`` are those of an engine that guesses nothing: greedy and drawn, chain and tree, a second turn,
    another answer, and two conversations at once. Each had more than ``drafted`` guesses."""
    begun = GenerationRequest(tokens=tuple(text), max_tokens=20, sampling=GREEDY, spec=TREE)
    drawn = SamplingParams(temperature=0.8, seed=6)
    first = answer(guessing, begun)
    wishes = [
        replace(begun, tokens=(*text, *first.ids, 28, 284)),
        replace(begun, sampling=drawn),
        replace(begun, tokens=tuple(text[:8]), spec=CHAIN),
        replace(begun, sampling=replace(drawn, repeat_penalty=1.2), spec=CHAIN),
    ]
    later = [*together(guessing, wishes[:2]), *together(guessing, wishes[2:])]
    assert min(outcome.stats.draft_n for outcome in (first, *later)) > drafted
    by_ratio = replace(begun, sampling=drawn, spec=replace(CHAIN, accept="ratio"))
    assert answer(guessing, by_ratio).stats.draft_n > 15
    with load(plain) as engine:
        assert [one.ids for one in (first, *later)] == [
            answer(engine, replace(wish, spec=PLAIN)).ids for wish in (begun, *wishes)
        ]


def check(engine: Engine) -> None:
    """Between steps the caches of target and drafters hold committed tokens and nothing else."""
    target: Any = engine.target
    for slot in engine._slots._slots:
        assert target.n_past(slot.seq) <= len(slot.tokens)
    if isinstance(target, LlamaTarget):
        check_cells(target)
    else:  # of torch
        assert not any(one.nodes for one in target._seqs.values())
    for drafter in engine._panel._drafters:
        if isinstance(drafter, DraftModel):
            model: Any = drafter._model
            if drafter._growing:
                continue
            contexts = single(model)
            for draft in contexts:
                check_cells(draft)
            if not contexts:  # of torch
                assert not any(one.nodes for one in model._seqs.values())


def single(model: Target) -> list[LlamaTarget]:
    """The contexts behind a draft model or a head."""
    parts = model._heads if isinstance(model, ChainedHead) else [model]
    return [part for part in parts if isinstance(part, LlamaTarget)]


def check_cells(target: LlamaTarget) -> None:
    """No sequence id reaches beyond the tokens it stands for."""
    if target.caps.rollback is not None:
        return
    ends = dict.fromkeys(range(target.caps.max_leaves), 0)
    for branches in target._seqs.values():
        ends[branches.main] = branches.n_past
        ends.update(branches._synced)
        assert not branches._tips
    memory = target._lib.llama_get_memory(target._ctx)
    found = {id_: target._lib.llama_memory_seq_pos_max(memory, id_) + 1 for id_ in ends}
    assert found == ends


def grammars(vocab: Vocab) -> Grammars:
    return Grammars([vocab.piece(token) for token in range(vocab.n_tokens)], vocab.end_tokens)


def ties(target: LlamaTarget, wish: GenerationRequest, prompt: Sequence[int], ours: Outcome, plain: Outcome) -> int:
    """0 if both answers are the same, 1 if they part at a near-tie; anything else fails."""
    pairs = enumerate(zip(ours.ids, plain.ids, strict=False))
    at = next((i for i, (one, other) in pairs if one != other), None)
    if at is None:
        assert ours.ids == plain.ids
        assert (ours.text, ours.finished.reason) == (plain.text, plain.finished.reason)
        return 0
    assert wish.sampling.seed is not None
    state = SamplerState.start(
        wish.sampling,
        seed=wish.sampling.seed,
        prompt=prompt,
        end_tokens=target.vocab.end_tokens,
        n_ctx=target.caps.n_ctx,
        breakers=breakers(target.vocab, wish.sampling.dry_sequence_breakers),
        grammar=None if wish.sampling.grammar is None else grammars(target.vocab).start(wish.sampling.grammar),
    )
    for i, token in enumerate(plain.ids[:at]):
        state = state.advance(token, partial(fresh_row, target, [*prompt, *plain.ids[:i]]))
    gap = perturbed_gap(state, fresh_row(target, [*prompt, *plain.ids[:at]]), ours.ids[at], plain.ids[at])
    assert gap < NEAR_TIE, f"position {at}: {ours.ids[at]} for {plain.ids[at]}, {gap} apart"
    return 1


def perturbed_gap(state: SamplerState, row: Row, one: int, other: int) -> float:
    """How far two tokens are apart in what the draw compares: scores, or log-probabilities plus noise."""
    if state.greedy:
        scores = state._scores(row)
        ids = np.arange(len(scores.logits)) if scores.ids is None else scores.ids
        values = np.asarray(scores.logits, np.float64)
    else:
        law = state.law(row)
        ids, values = law.ids, law.logp + state.noise(law.ids)
    of = {int(token): float(value) for token, value in zip(ids, values, strict=True)}
    return abs(of.get(one, -np.inf) - of.get(other, np.inf))
