"""Answers with all their passes, and the same passes again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from localspec.backends.base import Row, Work
from localspec.engine import Engine
from localspec.errors import EngineError
from localspec.spec.tree import TokenTree
from localspec.types import Failed, Finished, FinishReason, GenerationRequest, Tokens, TreeTrace

#: ``[positions, n_vocab]``, float32.
Table = NDArray[np.float32]
#: Prompt tokens in one pass, as the engine reads them.
_CHUNK = 256
#: Rows of the control's passes: up to those of a tree, since libraries compute few rows and many in other ways.
_GROUPS = (13, 2, 5, 8, 3)


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. ``trees`` are those of its steps, as verified, ``kept`` how many tokens each brought."""

    prompt: tuple[int, ...]
    ids: tuple[int, ...]
    text: str
    reason: FinishReason
    trees: tuple[TreeTrace, ...] = ()
    kept: tuple[int, ...] = ()
    accepted: int = 0


def answer(engine: Engine, request: GenerationRequest, *, trace: bool = False) -> Answer:
    """Answers with an empty cache, so that its passes can be repeated.

    Raises:
        UsageError: the prompt does not fit.
        EngineError: the answer failed.
    """
    engine.forget()
    prompt = tuple(engine.encode(request))
    texts, trees, kept = [], [], []
    for event in engine.submit(replace(request, trace=trace)):
        match event:
            case Tokens():
                texts.append(event.text)
                if event.step is not None and event.step.tree is not None:
                    trees.append(event.step.tree)
                    kept.append(event.step.emitted)
            case Failed():
                raise EngineError(f"an answer failed: {event.message}", hint=event.hint)
            case Finished():
                last = event
    return Answer(prompt, last.ids, "".join(texts), last.reason, tuple(trees), tuple(kept), last.stats.accepted)


class Replay:
    """Rows of a text, computed anew in sequences of their own. The engine must be idle."""

    def __init__(self, engine: Engine) -> None:
        engine.forget()
        self._target = engine.target

    def plain(self, prompt: Sequence[int], ids: Sequence[int]) -> Table:
        """As plain decoding computes them: one row a pass. Row i is what decides ``ids[i]``, and one more follows."""
        seq = self._opened(prompt)
        rows = []
        for token in (prompt[-1], *ids):
            rows.append(self._target.forward([Work(seq, TokenTree.root(token))])[0].logits(0).copy())
            self._target.commit(seq, (0,))
        self._target.close(seq)
        return np.array(rows)

    def moved(self, prompt: Sequence[int], ids: Sequence[int]) -> Table:
        """The control: the same rows, still without a guess, but in groups, and with cells of another text between
        their own. It begins within the prompt, so that a short answer is in a large group, too."""
        lead = min(len(prompt), max(_GROUPS)) - 1
        seq, other = self._opened(prompt[: len(prompt) - lead]), self._target.open()
        text, rows, turn = [*prompt[len(prompt) - lead - 1 :], *ids], list[Row](), 0
        while text:
            self._read(other, text[:1])
            size = min(_GROUPS[turn % len(_GROUPS)], self._target.caps.max_outputs)
            piece, text = text[:size], text[size:]
            mine = self._target.forward([Work(seq, TokenTree.chain(piece))])[0]
            rows += [mine.logits(node).copy() for node in range(len(piece))]
            self._target.commit(seq, range(len(piece)))
            turn += 1
        self._target.close(seq)
        self._target.close(other)
        return np.array(rows[lead:])

    def as_verified(self, found: Answer, position: int) -> Row | None:
        """The row that decided ``position`` of an answer, after the same passes over the same trees. ``None``: its
        steps did not get there."""
        seq, start = self._opened(found.prompt), 0
        text = (*found.prompt, *found.ids)
        try:
            for trace, kept in zip(found.trees, found.kept, strict=True):
                tree = TokenTree(trace.tokens, trace.parents, trace.scores, trace.sources)
                rows = self._target.forward([Work(seq, tree)])[0]
                decided_at = (0, *trace.path)
                if start <= position < start + len(decided_at):
                    row = rows.logits(decided_at[position - start]).copy()
                    self._target.commit(seq, ())
                    return row
                self._target.commit(seq, (0, *trace.path[:kept]))
                start += kept
                if lost := text[self._target.n_past(seq) : len(found.prompt) - 1 + start]:
                    self._read(seq, lost)
            return None
        finally:
            self._target.close(seq)

    def _opened(self, prompt: Sequence[int]) -> int:
        """A sequence that has read all but the last token of a prompt."""
        seq = self._target.open()
        chunk = min(_CHUNK, self._target.caps.max_rows)
        for start in range(0, len(prompt) - 1, chunk):
            self._read(seq, prompt[start : min(start + chunk, len(prompt) - 1)])
        return seq

    def _read(self, seq: int, tokens: Sequence[int]) -> None:
        self._target.forward([Work.prompt(seq, tokens)])
        self._target.commit(seq, range(len(tokens)))
