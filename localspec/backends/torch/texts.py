"""What all torch models have in common that are a `Target`: texts in one pool of cells."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from localspec.backends.base import Row, Rows, TargetCaps, Work
from localspec.backends.torch.cells import Cells, Pass, Text
from localspec.backends.torch.place import Place, arrays
from localspec.errors import Cancelled, EngineError, OutOfMemory
from localspec.sampling import SamplerState
from localspec.vocab import Vocab


@dataclass(frozen=True, slots=True)
class Computed:
    """What a pass gives, a row each new node, ``[rows, width]``: what logits are made of, and the features that were
    asked for, as in `Rows`. Rows that only fill a pass may follow."""

    last: Tensor
    layers: Mapping[int, Tensor]


@dataclass(frozen=True, slots=True)
class TorchRows:
    """Rows of one work item: ``scores`` are those of the nodes from ``first`` on."""

    scores: NDArray[np.float32]
    first: int
    features: Mapping[int, NDArray[np.float32]] = field(default_factory=dict)

    def logits(self, node: int) -> Row:
        if node < self.first:
            raise KeyError(f"no logits were asked for at node {node}")
        row: Row = self.scores[node - self.first]
        return row

    def draw(self, node: int, state: SamplerState) -> int:
        return state.draw(self.logits(node))


class TorchTexts(ABC):
    """All of the `Target` protocol but the pass itself.

    Args:
        full: what is said where no cell is free, and what to do about that.
    """

    def __init__(self, vocab: Vocab, caps: TargetCaps, cells: Cells, place: Place, full: tuple[str, str]) -> None:
        self._vocab, self._caps, self._cells, self._place, self._full = vocab, caps, cells, place, full
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
        try:
            self._check_stop()
            with torch.inference_mode():
                return self._pass(work, self._grown(work))
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

    def _by_token(self, scores: NDArray[np.float32]) -> NDArray[np.float32]:
        """What `_scored` gave, as ``[rows, n_vocab]``."""
        return scores

    def _pass(self, work: Sequence[Work], past: Pass) -> list[Rows]:
        computed = self._compute(work, past)
        firsts = [max(item.rows_from - item.done, 0) for item in work]
        asked = [computed.last[part.rows][first:] for part, first in zip(past.parts, firsts, strict=True)]
        scores, *states = arrays((self._scored(torch.cat(asked)), *computed.layers.values()))
        scores = self._by_token(scores)
        found: list[Rows] = []
        for item, part, first, rows in zip(work, past.parts, firsts, asked, strict=True):
            mine, scores = scores[: len(rows)], scores[len(rows) :]
            features = {layer: one[part.rows] for layer, one in zip(computed.layers, states, strict=True)}
            found.append(TorchRows(mine, item.done + first, features))
        return found

    def _grown(self, work: Sequence[Work]) -> Pass:
        """Room for the new nodes.

        Raises:
            OutOfMemory: there is none.
        """
        texts = [self._seqs[item.seq] for item in work]
        for text, item in zip(texts, work, strict=True):
            text.keep(item.done)
        if sum(len(item.tree) - item.done for item in work) > self._cells.free:
            raise OutOfMemory(self._full[0], hint=self._full[1])
        for text, item in zip(texts, work, strict=True):
            text.grow(item.tree)
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
        self._cells.layers.clear()
