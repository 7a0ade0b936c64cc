"""EAGLE heads in torch behind the `Head` protocol: one pass over the trees of all texts."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from localspec.backends.base import CARRIED, Rows, TargetCaps, Work
from localspec.backends.torch.cells import Cells, Span, ancestors
from localspec.backends.torch.eagle import Turn, eagle
from localspec.backends.torch.eagle_weights import EagleWeights
from localspec.backends.torch.ends import Ends
from localspec.backends.torch.place import Place, array
from localspec.backends.torch.target import TorchRows
from localspec.errors import Cancelled, EngineError, OutOfMemory
from localspec.vocab import Vocab

_ROWS = 64


@dataclass(slots=True)
class _Text:
    """A sequence: its slot, its committed tokens, and which nodes of its tree see which."""

    slot: int
    n: int = 0
    sees: NDArray[np.bool_] = field(default_factory=lambda: np.zeros((0, 0), bool))

    @property
    def nodes(self) -> int:
        """Of the tree that is yet to be committed."""
        return len(self.sees)


class TorchHead:
    """The head of ``weights``.

    Args:
        ends: the target's, or its own.
        vocab: the target's.
        n_ctx: tokens of each sequence at most.
        sequences: open at once.
        place: where it computes.
    """

    deepest: int | None = None

    def __init__(
        self,
        weights: EagleWeights,
        ends: Ends,
        vocab: Vocab,
        *,
        n_ctx: int,
        sequences: int = 1,
        place: Place | None = None,
    ) -> None:
        self._place = place = place or Place()
        place.start()
        self._net = eagle(weights, place)
        self._embed, self._vocab, self._ids = ends.embed, vocab, ends.ids
        self._unembedding = place.put(ends.unembedding)
        self._turns = weights.shape.turns.to(place.device)
        self._cells = Cells(weights.shape, sequences, n_ctx, place)
        self.layers = weights.reads
        rows = max(_ROWS, 2 * sequences)
        self._caps = TargetCaps(
            n_ctx=n_ctx,
            n_ctx_train=weights.n_ctx_train,
            n_vocab=vocab.n_tokens,
            max_rows=rows,
            max_outputs=rows,
            max_sequences=sequences,
            max_leaves=rows + sequences,
        )
        # What it cannot score stays at -inf: later passes write over the others only.
        self._scores = np.full((rows, vocab.n_tokens) if ends.ids is not None else (0, 0), -np.inf, np.float32)
        self._seqs: dict[int, _Text] = {}
        self._free = list(range(sequences - 1, -1, -1))
        self._next = 0
        self._stop = threading.Event()

    @property
    def caps(self) -> TargetCaps:
        return self._caps

    @property
    def vocab(self) -> Vocab:
        return self._vocab

    def open(self) -> int:
        if not self._free:
            raise EngineError(
                f"{len(self._seqs)} sequences are open already", hint="Load the engine with more sequences."
            )
        self._next += 1
        self._seqs[self._next] = _Text(self._free.pop())
        return self._next

    def fork(self, seq: int, n: int) -> int:
        new = self.open()
        self._cells.copy(self._seqs[seq].slot, self._seqs[new].slot, n)
        self._seqs[new].n = n
        return new

    def close(self, seq: int) -> None:
        self._free.append(self._seqs.pop(seq).slot)

    def n_past(self, seq: int) -> int:
        return self._seqs[seq].n

    def encode(self, seq: int, features: Mapping[int, NDArray[np.float32]]) -> NDArray[np.float32]:
        read = np.concatenate([features[layer] for layer in self.layers], axis=1)
        with torch.inference_mode():
            return array(self._net.encode(self._place.put_array(read)))

    def forward(self, work: Sequence[Work]) -> list[Rows]:
        try:
            if self._stop.is_set():
                raise Cancelled("the pass was stopped")
            with torch.inference_mode():
                return self._pass(work)
        except torch.OutOfMemoryError:
            self._drop(work)
            raise OutOfMemory(
                "the head's device has no room for a pass", hint="Use -ngld 0, or a smaller -c."
            ) from None
        except BaseException:
            self._drop(work)
            raise

    def _drop(self, work: Sequence[Work]) -> None:
        for item in work:
            self._seqs[item.seq].sees = np.zeros((0, 0), bool)

    def _pass(self, work: Sequence[Work]) -> list[Rows]:
        spans = [self._span(item) for item in work]
        most = max(span.end - span.start for span in spans)
        turn, mask = self._places(work, spans, most)
        embedded = _padded([self._place.put(self._embed(item.tree.tokens[item.done :])) for item in work], most)
        states = _padded([self._place.put_array(_states(item)) for item in work], most)
        carried, last = self._net.read(embedded, states, turn, partial(self._cells.attend, spans, mask))
        asked = [
            last[text, max(item.rows_from - item.done, 0) : len(item.tree) - item.done]
            for text, item in enumerate(work)
        ]
        scores = self._scored(torch.cat(asked))
        rows: list[Rows] = []
        for text, item in enumerate(work):
            n = len(item.tree) - item.done
            mine, scores = scores[: len(asked[text])], scores[len(asked[text]) :]
            first = max(item.rows_from, item.done)
            rows.append(TorchRows(mine, first, {CARRIED: array(carried[text, :n])}))
        return rows

    def _span(self, item: Work) -> Span:
        """Room for the new nodes.

        Raises:
            OutOfMemory: there is none.
        """
        text, tree = self._seqs[item.seq], item.tree
        if text.n + len(tree) > self._cells.room:
            raise OutOfMemory(f"the head's context of {self._cells.room} tokens is full", hint="Raise -c.")
        text.sees = ancestors(tree, item.done, text.sees)
        return Span(text.slot, text.n + item.done, text.n + len(tree))

    def _places(self, work: Sequence[Work], spans: Sequence[Span], most: int) -> tuple[Turn, Tensor]:
        """Where the new rows stand, and the cells that they see: ``[texts, most, cells]``."""
        positions = np.zeros((len(work), most), np.float32)
        mask = np.zeros((len(work), most, max(span.end for span in spans)), bool)
        for text, (item, span) in enumerate(zip(work, spans, strict=True)):
            n, rows = self._seqs[item.seq].n, span.end - span.start
            positions[text, :rows] = np.array(item.tree.depths[item.done :]) + n
            mask[text, :rows, :n] = True
            mask[text, :rows, n : span.end] = self._seqs[item.seq].sees[item.done :]
            mask[text, rows:, 0] = True  # rows that fill up see something, or they would be no numbers
        angles = torch.from_numpy(positions).to(self._place.device)[:, None, :, None] * self._turns
        turn = self._place.put(angles.cos()), self._place.put(angles.sin())
        return turn, torch.from_numpy(mask).to(self._place.device)

    def _scored(self, last: Tensor) -> NDArray[np.float32]:
        """By the target's ids, ``[rows, n_vocab]``."""
        scores = array(F.linear(last, self._unembedding))
        if self._ids is None:
            return scores
        self._scores[: len(scores), self._ids] = scores
        return self._scores[: len(scores)]

    def commit(self, seq: int, path: Sequence[int]) -> None:
        text = self._seqs[seq]
        self._cells.move(text.slot, text.n, path)
        text.n += len(path)
        text.sees = np.zeros((0, 0), bool)

    def truncate(self, seq: int, n: int) -> int:
        text = self._seqs[seq]
        text.n = min(text.n, n)
        return text.n

    def interrupt(self, on: bool) -> None:
        if on:
            self._stop.set()
        else:
            self._stop.clear()

    def set_threads(self, n: int) -> None:
        self._place.set_threads(n)

    def close_all(self) -> None:
        self._seqs.clear()


def _states(item: Work) -> NDArray[np.float32]:
    assert item.states is not None, "a head reads states"
    return item.states


def _padded(parts: Sequence[Tensor], most: int) -> Tensor:
    """``[texts, most, width]``; what is missing of a text is zeros."""
    if len(parts) == 1:
        return parts[0][None]
    return torch.stack([F.pad(part, (0, 0, 0, most - len(part))) for part in parts])
