"""EAGLE heads in torch behind the `Head` protocol: one pass over the trees of all texts; on a card a CUDA graph, and
another one for all levels of a tree (`loop`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from localspec.backends.base import CARRIED, Extent, Grow, Level, TargetCaps, Work
from localspec.backends.torch.attention import Past
from localspec.backends.torch.cells import Cells, Pass
from localspec.backends.torch.eagle import eagle
from localspec.backends.torch.eagle_weights import EagleWeights
from localspec.backends.torch.ends import Ends
from localspec.backends.torch.graphs import BUCKETS, Graphs
from localspec.backends.torch.kernels.dispatch import PLAIN, Ops
from localspec.backends.torch.kernels.rope_write import Turn
from localspec.backends.torch.llama import Read
from localspec.backends.torch.loop import Guessing, Loop
from localspec.backends.torch.place import Gpu, Place, array
from localspec.backends.torch.places import Places
from localspec.backends.torch.rope import cos_and_sin
from localspec.backends.torch.rows import Ids
from localspec.backends.torch.texts import Computed, TorchTexts
from localspec.spec.tree import TokenTree
from localspec.vocab import Vocab

_ROWS = 64
#: Of the memory that is free, the part that embeddings may take.
_SHARE = 4
#: Embeddings that are read from a file at a time.
_PIECE = 4096


class TorchHead(TorchTexts):
    """The head of ``weights``.

    Args:
        ends: the target's, or its own.
        vocab: the target's.
        n_ctx: tokens of each sequence at most.
        sequences: open at once.
        place: where it computes.
        ops: what attention is computed by.
        buckets: as `TorchTarget`, and ``far``.
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
        ops: Ops = PLAIN,
        buckets: bool | None = None,
        far: bool | None = None,
    ) -> None:
        place = place or Place()
        self._net = eagle(weights, place)
        self._embed, self._ids = ends.embed, ends.ids
        self._unembedding = place.put(ends.unembedding)
        self._turns = weights.shape.turns.to(place.device)
        self.layers = weights.reads
        rows = max(_ROWS, 2 * sequences)
        caps = TargetCaps(
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
        cells = Cells(weights.shape, n_ctx * sequences, Places.whole(place))
        full = f"the head's context of {n_ctx} tokens is full", "Raise -c."
        super().__init__(vocab, caps, cells, place, full, far=far)
        filled = not ops.waits if buckets is None else buckets
        self._still = _Still(self._read, ops, place, weights.shape.width) if filled else None
        self._graphs = None if self._still is None else Graphs(self._still, cells, sequences)
        self._loop = None if self._graphs is None else self._made_loop(vocab.n_tokens, self._graphs, ops)

    def _made_loop(self, n_vocab: int, graphs: Graphs, ops: Ops) -> Loop | None:
        """``None`` where embeddings of all tokens would take too much of the card."""
        place, width = self._place, self._net.shape.width
        gpu = Gpu.seen() if place.device.type == "cuda" else None
        if gpu is not None and n_vocab * width * place.dtype.itemsize > gpu.free() // _SHARE:
            return None
        embedding = torch.empty((n_vocab, width), device=place.device, dtype=place.dtype)
        for start in range(0, n_vocab, _PIECE):
            piece = range(start, min(start + _PIECE, n_vocab))
            embedding[start : piece.stop] = place.put(self._embed(piece))
        ids = None if self._ids is None else torch.from_numpy(self._ids).to(place.device)
        by = Guessing(self._read, embedding, self._unembedding, ids, ops)
        return Loop(by, graphs, self._caps.max_sequences)

    def try_out(self) -> str:
        """Reads a token, and guesses behind it; gives one line where that could not be made CUDA graphs, else
        nothing."""
        seq = self.open()
        work = [Work(seq, TokenTree.root(0), states=np.zeros((1, self._net.shape.width), np.float32))]
        self.forward(work)
        if self.grow is not None:
            self.grow(work, [Extent(2, 1)])
        self.close(seq)
        return "" if self._graphs is None else self._graphs.note

    def close_all(self) -> None:
        super().close_all()
        self._still = self._graphs = self._loop = None

    @property
    def grow(self) -> Grow | None:
        return None if self._loop is None else self._grow

    def _grow(self, work: Sequence[Work], extents: Sequence[Extent]) -> list[list[Level]] | None:
        loop, nodes = self._loop, [len(item.tree) for item in work]
        assert loop is not None, "else there is nothing to call"
        plan = loop.plan(extents)
        if plan is None or not plan.fits(nodes) or sum(nodes) + len(nodes) * plan.behind > self._cells.free:
            return None

        def run() -> list[list[Level]]:
            return loop.grow(work, self._states(work), self._grown(work, plan.behind), plan)

        return self._whole(work, run)

    def encode(self, seq: int, features: Mapping[int, NDArray[np.float32]]) -> NDArray[np.float32]:
        with torch.inference_mode():
            return array(self._encoded(features))

    def _encoded(self, features: Mapping[int, NDArray[np.float32]]) -> Tensor:
        read = np.concatenate([features[layer] for layer in self.layers], axis=1)
        return self._net.encode(self._place.put_array(read))

    def _states(self, work: Sequence[Work]) -> Tensor:
        """What rows of ``work`` read beside their tokens, ``[rows, width]``."""
        found = []
        for item in work:
            if item.raw is not None:
                found.append(self._encoded(item.raw))
            else:
                assert item.states is not None, "a head reads states"
                found.append(self._place.put_array(item.states))
        return torch.cat(found)

    def _compute(self, work: Sequence[Work], past: Pass) -> Computed:
        embedded = torch.cat([self._place.put(self._embed(item.tree.tokens[item.done :])) for item in work])
        states = self._states(work)
        if self._still is not None and self._graphs is not None and self._graphs.takes(past):
            self._still.put(embedded, states)
            read = self._graphs.read([0] * len(states), (), past)  # tokens are read as embedded
        else:
            read = self._read(embedded[None], states[None], past)
        return Computed(read.hidden[0], {CARRIED: read.layers[CARRIED][0]})

    def _read(self, embedded: Tensor, states: Tensor, past: Past) -> Read:
        turn = Turn(*cos_and_sin(past.places(states.shape[1]), self._turns))
        carried, last = self._net.read(embedded, states, turn, past.attend)
        return Read(last, {CARRIED: carried})

    def _scored(self, last: Tensor) -> Tensor:
        return F.linear(last, self._unembedding)

    def _named(self, scored: Ids) -> Ids:
        return scored if self._ids is None else self._ids[scored]

    def _by_token(self, scores: NDArray[np.float32]) -> NDArray[np.float32]:
        if self._ids is None:
            return scores
        self._scores[: len(scores), self._ids] = scores
        return self._scores[: len(scores)]


class _Still:
    """What a head reads in passes that are filled: it lies in memory that stays where it is. Rows that only fill read
    what earlier passes left."""

    def __init__(self, read: Callable[[Tensor, Tensor, Past], Read], ops: Ops, place: Place, width: int) -> None:
        self.ops, self._read = ops, read
        self._lies = torch.zeros((2, 1, max(BUCKETS), width), device=place.device, dtype=place.dtype)

    def put(self, embedded: Tensor, states: Tensor) -> None:
        for lies, rows in zip(self._lies, (embedded, states), strict=True):
            lies[0, : len(rows)] = rows

    def read(self, tokens: Tensor, layers: Collection[int], past: Past) -> Read:
        with torch.inference_mode():
            embedded, states = self._lies[:, :, : tokens.shape[1]]
            return self._read(embedded, states, past)
