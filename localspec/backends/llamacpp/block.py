"""Block drafters in GGUF files of their own, where one pass guesses several tokens: DFlash (arXiv 2602.06036), DFlash
2, whose guesses are picked among a few candidates by the one before, and DSpark, where each shifts the scores of the
next.

The cache holds keys and values that are made of the target's hidden states, one cell a token of the text. A block is
the pending token and masks behind it, all of which see the text and each other. llama.cpp tells the two kinds of pass
apart by what is in the batch: vectors go into the cache, tokens are a block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from localspec.backends.base import Rows, Work
from localspec.backends.llamacpp.batch import Batch
from localspec.backends.llamacpp.context import LlamaContext
from localspec.backends.llamacpp.head import check_fit
from localspec.backends.llamacpp.model import LlamaModel
from localspec.backends.llamacpp.options import LlamaOptions
from localspec.backends.llamacpp.target import LlamaTarget, picked
from localspec.errors import UsageError
from localspec.hub.header import read_header

_BLOCK = 16  # llama.cpp's, where the file names none
_MROPE = 8  # LLAMA_ROPE_TYPE_MROPE
_OTHERS = "Use another drafter (-md), or n-grams (--spec-type)."
_ROWS = 64  # of text in a pass: each has the states of several layers


class LlamaBlock(LlamaTarget):
    """The block drafter ``model`` on ``target``, which has to outlive it. A pass is of states or of blocks, and blocks
    of one pass are equally long.

    Raises:
        UsageError: made for another target, or of a kind that this build or localspec cannot drive.
        OutOfMemory: the cache or the buffers do not fit.
        ModelFault: the first pass gives no finite scores.
    """

    def __init__(self, model: LlamaModel, options: LlamaOptions, target: LlamaTarget) -> None:
        self._hooks = model.native.hooks
        self.layers = self._hooks.layers_read(model.handle)
        self._target = target
        tensors = {tensor.name for tensor in read_header(model.path).tensors}
        chained, self.has_confidence = "markov_w1.weight" in tensors, "conf_proj.weight" in tensors
        self.candidates = self._hooks.candidates(model.handle)
        self._check_kind(model, chained=chained)
        check_fit(model, self.layers, model.n_embd, target.model)
        size = int(model.metadata("dflash.block_size") or _BLOCK)
        self.first_row = 0 if chained and model.metadata("dflash.sample_from_anchor") != "false" else 1
        self.guesses = size - self.first_row
        self.mask = int(model.native.lib.llama_vocab_mask(model.native.lib.llama_model_get_vocab(model.handle)))
        rows = max(_ROWS, options.sequences * size)
        super().__init__(model, replace(options, branches=0, n_batch=rows, n_ubatch=rows, outputs=rows))

    def _check_kind(self, model: LlamaModel, *, chained: bool) -> None:
        name, lib = model.path.name, model.native.lib
        if lib.llama_model_rope_type(model.handle) == _MROPE:
            raise UsageError(f"{name} has positions of several parts, which localspec does not drive", hint=_OTHERS)
        if chained and model.metadata("dflash.block_size") is None:
            raise UsageError(f"{name} does not say how long its blocks are", hint="Convert it again.")
        if lib.llama_vocab_mask(lib.llama_model_get_vocab(model.handle)) < 0:
            raise UsageError(f"{name} does not say which token is its mask", hint="Convert it again.")

    def _make_context(self, n_ids: int) -> LlamaContext:
        context = LlamaContext(self._model, self._options, n_ids, self._flag, self._target.handle)
        if self.has_confidence or self.candidates:
            self._hooks.give_states(context.handle)
        self._lib.llama_set_causal_attn(context.handle, self._model.metadata("dflash.attention.causal") == "true")
        return context

    def _make_batch(self, n_ids: int) -> Batch:
        width = len(self.layers) * self._model.n_embd
        self._states = Batch(self._lib, self._caps.max_rows, n_ids, width=width, has_tokens=False)
        self._tokens = super()._make_batch(n_ids)
        return self._tokens

    def forward(self, work: Sequence[Work]) -> list[Rows]:
        self._batch = self._tokens if work[0].states is None else self._states
        return super().forward(work)

    def _keep_layers(self, layers: object) -> None:
        """`CARRIED` is always kept."""

    def _add(self, item: Work) -> dict[int, int]:
        rows = super()._add(item)
        if item.states is not None:
            self._states.vectors[list(rows.values())] = item.states
        return rows

    def layer(self, layer: int, rows: Sequence[int]) -> NDArray[np.float32]:
        return picked(self._hooks.states(self._ctx, self._batch.rows, self._model.n_embd), rows)

    def take_in(self, seq: int, features: Mapping[int, NDArray[np.float32]]) -> None:
        read = np.concatenate([features[layer] for layer in self.layers], axis=1)
        for start in range(0, len(read), self._caps.max_rows):
            piece = read[start : start + self._caps.max_rows]
            self.forward([Work.prompt(seq, [0] * len(piece), states=piece)])
            self.commit(seq, range(len(piece)))
