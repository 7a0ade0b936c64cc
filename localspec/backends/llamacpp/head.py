"""Heads in llama.cpp: a `Target` that reads states beside tokens, in a second context of its own.

Some graphs take logits, or what is carried on, for the first rows of a batch, whichever ask for them: so all rows of a
pass have them, or none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from localspec.backends.base import CARRIED, Grow, Rows, Work
from localspec.backends.llamacpp.batch import Batch
from localspec.backends.llamacpp.context import LlamaContext
from localspec.backends.llamacpp.model import LlamaModel
from localspec.backends.llamacpp.options import LlamaOptions
from localspec.backends.llamacpp.target import LlamaTarget, picked
from localspec.errors import UsageError
from localspec.spec.tree import TokenTree

# Every row of a pass costs a row of logits over the target's vocabulary, in memory and, for text too, in time.
_ROWS = 64


class LlamaHead(LlamaTarget):
    """The head ``model`` on ``target``, which has to outlive it, reading ``layers`` of it.

    Raises:
        UsageError: a build without the functions for heads; options as `LlamaTarget`.
        OutOfMemory: the cache or the buffers do not fit.
        ModelFault: the first pass gives no finite scores.
    """

    deepest: int | None = None
    grow: Grow | None = None

    def __init__(
        self,
        model: LlamaModel,
        options: LlamaOptions,
        target: LlamaTarget,
        layers: tuple[int, ...],
        *,
        rows: int = 0,
    ) -> None:
        self._hooks = model.native.hooks
        self.layers = layers
        self._target = target
        rows = max(_ROWS, options.sequences + options.branches + 1) + rows
        super().__init__(model, replace(options, n_batch=rows, n_ubatch=rows, outputs=rows))

    def _make_batch(self, n_ids: int) -> Batch:
        return Batch(self._lib, self._caps.max_rows, n_ids, width=self._model.n_embd)

    def _first_work(self, seq: int, token: int) -> Work:
        return Work(seq, TokenTree.root(token), states=np.zeros((1, self._model.n_embd), np.float32))

    def forward(self, work: Sequence[Work]) -> list[Rows]:
        wanted = any(item.rows_from < len(item.tree) for item in work)
        return super().forward(
            [replace(item, rows_from=item.done if wanted else len(item.tree), features=(CARRIED,)) for item in work]
        )

    def _keep_layers(self, layers: object) -> None:
        """`CARRIED` is always kept."""

    def _add(self, item: Work) -> dict[int, int]:
        rows = super()._add(item)
        assert item.states is not None, "a head reads states"
        self._batch.vectors[[rows[node] for node in range(item.done, len(item.tree))]] = item.states
        return rows

    def layer(self, layer: int, rows: Sequence[int]) -> NDArray[np.float32]:
        return picked(self._hooks.states(self._ctx, self._batch.rows, self._model.n_embd), rows)

    def encode(self, seq: int, features: Mapping[int, NDArray[np.float32]]) -> NDArray[np.float32]:
        raise NotImplementedError


class EagleHead(LlamaHead):
    """An EAGLE-3 head (arXiv 2503.01840) in a GGUF file of its own. It uses its target's embeddings.

    Raises:
        UsageError: a head for another target, too.
    """

    def __init__(self, model: LlamaModel, options: LlamaOptions, target: LlamaTarget) -> None:
        layers = model.native.hooks.layers_read(model.handle)
        width = int(model.metadata(f"{model.architecture}.target_hidden_size") or 0)
        check_fit(model, layers, width, target.model)
        super().__init__(model, options, target, layers)

    def _make_context(self, n_ids: int) -> LlamaContext:
        context = LlamaContext(self._model, self._options, n_ids, self._flag, self._target.handle)
        self._hooks.give_states(context.handle)
        return context

    def _make_batch(self, n_ids: int) -> Batch:
        width = len(self.layers) * self._target.model.n_embd
        self._features = Batch(self._lib, self._caps.max_rows, 1, width=width, has_tokens=False)
        return super()._make_batch(n_ids)

    def encode(self, seq: int, features: Mapping[int, NDArray[np.float32]]) -> NDArray[np.float32]:
        read = np.concatenate([features[layer] for layer in self.layers], axis=1)
        size = self._features.max_rows
        return np.concatenate([self._encode(seq, read[start : start + size]) for start in range(0, len(read), size)])

    def _encode(self, seq: int, read: NDArray[np.float32]) -> NDArray[np.float32]:
        branches, batch, n = self._seqs[seq], self._features, len(read)
        batch.clear()
        # Nothing goes into the cache, and yet llama.cpp wants the positions that would come next.
        batch.add_chain([0] * n, branches.n_past, branches.main, 0)
        batch.vectors[:n] = read
        code = self._lib.llama_encode(self._ctx, batch.native)
        if code:
            raise self._failure(code)
        return self._hooks.states(self._ctx, n, self._model.n_embd).copy()


def check_fit(head: LlamaModel, layers: Sequence[int], width: int, target: LlamaModel) -> None:
    """Whether a head, made for a target of ``width``, reads what this one has.

    Raises:
        UsageError: it was made for another target, or this one's graph gives no hidden states.
    """
    name, hint = head.path.name, "Use the head that was trained for this target, or leave -md out."
    if not target.gives_layers:
        raise UsageError(
            f"a head reads hidden states, and llama.cpp gives none of the architecture {target.architecture}",
            hint="Use a draft model (-md) or n-grams (--spec-type).",
        )
    if width != target.n_embd:
        raise UsageError(
            f"{name} was made for a target of width {width}, {target.path.name} has {target.n_embd}", hint=hint
        )
    # The input of layer n_layer, the output of the last, is not handed out.
    if not layers or max(layers) >= target.n_layer or min(layers) < 0:
        wanted = ", ".join(map(str, layers))
        raise UsageError(f"{name} reads layers {wanted}, {target.path.name} has 0 to {target.n_layer - 1}", hint=hint)
