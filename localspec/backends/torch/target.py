"""A torch decoder behind the `Target` protocol: token trees by a mask, one pass over the trees of all texts."""

from __future__ import annotations

from collections.abc import Sequence, Set

import torch
from torch import Tensor

from localspec.backends.base import NORMED, TargetCaps, Work
from localspec.backends.torch.cells import Cells, Pass
from localspec.backends.torch.graphs import Graphs
from localspec.backends.torch.llama import Read, TorchLlama
from localspec.backends.torch.texts import Computed, TorchTexts
from localspec.errors import DecodeError
from localspec.vocab import Vocab


class TorchTarget(TorchTexts):
    """One model and its cache.

    Args:
        model: the decoder.
        vocab: of its tokens.
        n_ctx: cells shared by all sequences.
        n_ctx_train: the length that it was trained for; 0: ``n_ctx``.
        sequences: open at once.
        max_rows: nodes in one pass, ``max_outputs`` of them with logits; 0: all.
        buckets: whether passes of few rows are filled up to one of few sizes, and read from memory that stays where it
            is; ``None``: where the model's kernels are for that, and all of it lies in one place.
        far: as `TorchTexts`.
    """

    def __init__(
        self,
        model: TorchLlama,
        vocab: Vocab,
        *,
        n_ctx: int,
        n_ctx_train: int = 0,
        sequences: int = 1,
        max_rows: int = 512,
        max_outputs: int = 0,
        buckets: bool | None = None,
        far: bool | None = None,
    ) -> None:
        self._model = model
        caps = TargetCaps(
            n_ctx=n_ctx,
            n_ctx_train=n_ctx_train or n_ctx,
            n_vocab=len(model.unembedding),
            max_rows=max_rows,
            max_outputs=max_outputs or max_rows,
            max_sequences=sequences,
            max_leaves=max_rows + sequences,
            feature_layers=frozenset({NORMED, *range(model.shape.layers)}),
        )
        full = f"the context of {n_ctx} cells is full", "Raise -c, or start a new conversation."
        places = model.places
        super().__init__(vocab, caps, Cells(model.shape, n_ctx, places), places.last, full, far=far)
        filled = not (model.ops.waits or places.is_divided) if buckets is None else buckets
        self._graphs = Graphs(model, self._cells, sequences) if filled else None

    @property
    def model(self) -> TorchLlama:
        return self._model

    @property
    def note(self) -> str:
        """One line where its passes could not be made CUDA graphs; empty otherwise."""
        return "" if self._graphs is None else self._graphs.note

    @property
    def caches(self) -> tuple[int, ...]:
        """What the cache takes when it is full, by layer."""
        return self._cells.bytes

    def close_all(self) -> None:
        super().close_all()
        for name in ("_model", "_graphs"):  # whoever still holds a closed target holds no weights
            vars(self).pop(name, None)

    def _compute(self, work: Sequence[Work], past: Pass) -> Computed:
        tokens = [token for item in work for token in item.tree.tokens[item.done :]]
        if len(tokens) > self._caps.max_rows:
            raise DecodeError(
                f"a pass of more than {self._caps.max_rows} rows was asked for", hint="Raise -ub or draft fewer tokens."
            )
        asked = {layer for item in work for layer in item.features}
        read = self._read(tokens, asked - {NORMED}, past)
        layers = {**read.layers, NORMED: read.hidden} if NORMED in asked else read.layers
        return Computed(read.hidden[0], {layer: states[0] for layer, states in layers.items()})

    def _read(self, tokens: Sequence[int], layers: Set[int], past: Pass) -> Read:
        if self._graphs is not None and self._graphs.takes(past):
            return self._graphs.read(tokens, layers, past)
        return self._model.read(torch.tensor([tokens], device=self._model.embedding.device), layers, past)

    def _scored(self, last: Tensor) -> Tensor:
        return self._model.scores(last)
