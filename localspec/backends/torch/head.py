"""EAGLE heads in torch behind the `Head` protocol: one pass over the trees of all texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from localspec.backends.base import CARRIED, TargetCaps, Work
from localspec.backends.torch.cells import Cells, Pass
from localspec.backends.torch.eagle import eagle
from localspec.backends.torch.eagle_weights import EagleWeights
from localspec.backends.torch.ends import Ends
from localspec.backends.torch.kernels.rope_write import Turn
from localspec.backends.torch.place import Place, array
from localspec.backends.torch.rope import cos_and_sin
from localspec.backends.torch.rows import Ids
from localspec.backends.torch.texts import Computed, TorchTexts
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
        cells = Cells(weights.shape, n_ctx * sequences, place)
        full = f"the head's context of {n_ctx} tokens is full", "Raise -c."
        super().__init__(vocab, caps, cells, place, full)

    def encode(self, seq: int, features: Mapping[int, NDArray[np.float32]]) -> NDArray[np.float32]:
        read = np.concatenate([features[layer] for layer in self.layers], axis=1)
        with torch.inference_mode():
            return array(self._net.encode(self._place.put_array(read)))

    def _compute(self, work: Sequence[Work], past: Pass) -> Computed:
        embedded = torch.cat([self._place.put(self._embed(item.tree.tokens[item.done :])) for item in work])
        states = torch.cat([self._place.put_array(_states(item)) for item in work])
        turn = Turn(*cos_and_sin(past.places(len(states)), self._turns))
        carried, last = self._net.read(embedded[None], states[None], turn, past.attend)
        return Computed(last[0], {CARRIED: carried[0]})

    def _scored(self, last: Tensor) -> Tensor:
        return F.linear(last, self._unembedding)

    def _named(self, scored: Ids) -> Ids:
        return scored if self._ids is None else self._ids[scored]

    def _by_token(self, scores: NDArray[np.float32]) -> NDArray[np.float32]:
        if self._ids is None:
            return scores
        self._scores[: len(scores), self._ids] = scores
        return self._scores[: len(scores)]


def _states(item: Work) -> NDArray[np.float32]:
    assert item.states is not None, "a head reads states"
    return item.states
