"""EAGLE heads in torch behind the `Head` protocol: one pass over the trees of all texts, on a card a CUDA graph a
level."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from localspec.backends.base import CARRIED, TargetCaps, Work
from localspec.backends.torch.attention import Past
from localspec.backends.torch.cells import Cells, Pass
from localspec.backends.torch.eagle import eagle
from localspec.backends.torch.eagle_weights import EagleWeights
from localspec.backends.torch.ends import Ends
from localspec.backends.torch.graphs import BUCKETS, Graphs
from localspec.backends.torch.kernels.dispatch import PLAIN, Ops
from localspec.backends.torch.kernels.rope_write import Turn
from localspec.backends.torch.llama import Read
from localspec.backends.torch.place import Place, array
from localspec.backends.torch.places import Places
from localspec.backends.torch.rope import cos_and_sin
from localspec.backends.torch.rows import Ids
from localspec.backends.torch.texts import Computed, TorchTexts
from localspec.spec.tree import TokenTree
from localspec.vocab import Vocab

_ROWS = 64


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

    def try_out(self) -> str:
        """Reads a token; gives one line where that could not be made a CUDA graph, else nothing."""
        seq = self.open()
        self.forward([Work(seq, TokenTree.root(0), states=np.zeros((1, self._net.shape.width), np.float32))])
        self.close(seq)
        return "" if self._graphs is None else self._graphs.note

    def close_all(self) -> None:
        super().close_all()
        self._still = self._graphs = None

    def encode(self, seq: int, features: Mapping[int, NDArray[np.float32]]) -> NDArray[np.float32]:
        read = np.concatenate([features[layer] for layer in self.layers], axis=1)
        with torch.inference_mode():
            return array(self._net.encode(self._place.put_array(read)))

    def _compute(self, work: Sequence[Work], past: Pass) -> Computed:
        embedded = torch.cat([self._place.put(self._embed(item.tree.tokens[item.done :])) for item in work])
        states = torch.cat([self._place.put_array(_states(item)) for item in work])
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


def _states(item: Work) -> NDArray[np.float32]:
    assert item.states is not None, "a head reads states"
    return item.states
