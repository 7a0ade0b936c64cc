"""What all torch models have in common that are a `Target`: texts in one pool of cells."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeVar

import torch
from torch import Tensor

from localspec.backends.base import Rows, TargetCaps, Work
from localspec.backends.torch.cells import Cells, Pass, Text
from localspec.backends.torch.place import Place, arrays
from localspec.backends.torch.rows import Ids, Likeliest, Scores, TorchRows, Whole
from localspec.errors import Cancelled, EngineError, OutOfMemory
from localspec.vocab import Vocab

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Computed:
    """What a pass gives, a row each new node, ``[rows, width]``: what logits are made of, and the features that were
    asked for, as in `Rows`. Rows that only fill a pass may follow."""

    last: Tensor
    layers: Mapping[int, Tensor]


class TorchTexts(ABC):
    """All of the `Target` protocol but the pass itself.

    Args:
        full: what is said where no cell is free, and what to do about that.
        far: whether scores stay where they were computed until a row is asked for; ``None``: on a card.
    """

    def __init__(
        self,
        vocab: Vocab,
        caps: TargetCaps,
        cells: Cells,
        place: Place,
        full: tuple[str, str],
        *,
        far: bool | None = None,
    ) -> None:
        self._vocab, self._caps, self._cells, self._place, self._full = vocab, caps, cells, place, full
        self._far = place.device.type != "cpu" if far is None else far
        self._last: Scores | None = None  # of the last pass that had any
        self._wants_rows = False
        self._seqs: dict[int, Text] = {}
        self._next = 0
        self._stop = threading.Event()
        place.start()

    @property
    def caps(self) -> TargetCaps:
        return self._caps

    @property
    def vocab(self) -> Vocab:
        return self._vocab

    def open(self) -> int:
        return self._added(Text(self._cells))

    def fork(self, seq: int, n: int) -> int:
        return self._added(self._seqs[seq], n)

    def _added(self, text: Text, shared: int | None = None) -> int:
        if len(self._seqs) >= self._caps.max_sequences:
            raise EngineError(
                f"{len(self._seqs)} sequences are open already", hint="Load the engine with more sequences."
            )
        self._next += 1
        self._seqs[self._next] = text if shared is None else text.fork(shared)
        return self._next

    def close(self, seq: int) -> None:
        self._seqs.pop(seq).truncate(0)

    def n_past(self, seq: int) -> int:
        return self._seqs[seq].n

    def forward(self, work: Sequence[Work]) -> list[Rows]:
        return self._whole(work, lambda: self._pass(work, self._grown(work)))

    def _whole(self, work: Sequence[Work], run: Callable[[], V]) -> V:
        """What ``run`` gives; where it fails nothing of ``work`` stays."""
        try:
            self._check_stop()
            with torch.inference_mode():
                return run()
        except torch.OutOfMemoryError:
            self._drop(work)
            raise OutOfMemory("the device has no room for a pass", hint=self._full[1]) from None
        except BaseException:
            self._drop(work)
            raise

    @abstractmethod
    def _compute(self, work: Sequence[Work], past: Pass) -> Computed:
        """Computes the new nodes of ``work``, those of one text behind those of another."""

    @abstractmethod
    def _scored(self, last: Tensor) -> Tensor:
        """Logits of rows that `_compute` gave: ``[rows, scored tokens]``."""

    def _named(self, scored: Ids) -> Ids:
        """Tokens, by their places in what `_scored` gave."""
        return scored

    def _by_token(self, scores: Whole) -> Whole:
        """What `_scored` gave, as ``[rows, n_vocab]``."""
        return scores

    def _pass(self, work: Sequence[Work], past: Pass) -> list[Rows]:
        if self._last is not None:  # who draws by rows does so for a whole answer
            self._wants_rows, self._last = self._last.asked, None
        computed = self._compute(work, past)
        firsts = [max(item.rows_from - item.done, 0) for item in work]
        asked = [computed.last[part.rows][first:] for part, first in zip(past.parts, firsts, strict=True)]
        scores, states = self._fetched(self._scored(torch.cat(asked)), list(computed.layers.values()))
        starts = accumulate(map(len, asked), initial=0)
        found: list[Rows] = []
        for item, part, first, start in zip(work, past.parts, firsts, starts, strict=False):
            features = {layer: one[part.rows] for layer, one in zip(computed.layers, states, strict=True)}
            found.append(TorchRows(scores, start, item.done + first, features))
        return found

    def _fetched(self, scored: Tensor, states: Sequence[Tensor]) -> tuple[Scores, list[Whole]]:
        """What is to come from where it was computed comes at once: rows if one was asked for in the last pass."""
        whole = not self._far or self._wants_rows
        best = scored.max(dim=1) if self._far else ()
        found = arrays((*best, *(scored,) * whole, *states))
        likeliest = Likeliest(self._named(found[1]), found[0]) if self._far else None
        here = self._by_token(found[len(best)]) if whole else None
        scores = Scores(scored, self._by_token, here, likeliest)
        if len(scored):
            self._last = scores
        return scores, found[len(found) - len(states) :]

    def _grown(self, work: Sequence[Work], spare: int = 0) -> Pass:
        """Room for the new nodes, and for ``spare`` more of each text.

        Raises:
            OutOfMemory: there is none.
        """
        texts = [self._seqs[item.seq] for item in work]
        for text, item in zip(texts, work, strict=True):
            text.keep(item.done)
        if sum(len(item.tree) - item.done + spare for item in work) > self._cells.free:
            raise OutOfMemory(self._full[0], hint=self._full[1])
        for text, item in zip(texts, work, strict=True):
            text.grow(item.tree)
            text.spare(spare)
        return Pass([(text, item.tree, item.done) for text, item in zip(texts, work, strict=True)], self._check_stop)

    def _check_stop(self) -> None:
        if self._stop.is_set():
            raise Cancelled("the pass was stopped")

    def _drop(self, work: Sequence[Work]) -> None:
        for item in work:
            self._seqs[item.seq].commit(())

    def commit(self, seq: int, path: Sequence[int]) -> None:
        self._seqs[seq].commit(path)

    def truncate(self, seq: int, n: int) -> int:
        self._seqs[seq].truncate(n)
        return self._seqs[seq].n

    def interrupt(self, on: bool) -> None:
        if on:
            self._stop.set()
        else:
            self._stop.clear()

    def set_threads(self, n: int) -> None:
        self._place.set_threads(n)

    def close_all(self) -> None:
        self._seqs.clear()
        self._last = None
        self._cells.layers.clear()
