"""Layers for multi-token prediction (MTP, NextN), which some models carry behind those that make the text.

Each is a head: a context over the same weights that runs that one layer. Where a model has several, the first guesses
the token after next, and each later one the token after the guess of the one before: `localspec.backends.chained`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack

import numpy as np
from numpy.typing import NDArray

from localspec.backends.base import CARRIED, Head
from localspec.backends.chained import ChainedHead
from localspec.backends.llamacpp.context import LlamaContext
from localspec.backends.llamacpp.head import LlamaHead
from localspec.backends.llamacpp.options import LlamaOptions
from localspec.backends.llamacpp.target import LlamaTarget
from localspec.errors import UsageError
from localspec.hub.header import Header

#: Architectures of which llama.cpp runs such layers as well as loads them, and of these, those that may have several.
#: Asked for those of another, or for several of a kind that has one, it ends the process.
RUN = frozenset({"cohere2moe", "deepseek2", "deepseek32", "glm-dsa", "glm4moe", "hy_v3", "mimo2", "step35"})
CHAINED = frozenset({"hy_v3", "mimo2", "step35"})
_OTHERS = "Use a draft model or a head (-md), or n-grams (--spec-type)."


class MtpHead(LlamaHead):
    """The target's layer ``number`` for multi-token prediction, counted from 0; ``rows`` more in a pass than usual."""

    def __init__(self, target: LlamaTarget, options: LlamaOptions, number: int = 0, *, rows: int = 0) -> None:
        self._number = number
        super().__init__(target.model, options, target, (CARRIED,), rows=rows)

    def _make_context(self, n_ids: int) -> LlamaContext:
        context = LlamaContext(self._model, self._options, n_ids, self._flag, predictors=True)
        self._hooks.give_states(context.handle)
        self._hooks.pick_predictor(context.handle, self._number)
        return context

    def encode(self, seq: int, features: Mapping[int, NDArray[np.float32]]) -> NDArray[np.float32]:
        return features[CARRIED].copy()

    def _free_model(self) -> None:
        """It is the target's."""


def predictors(target: LlamaTarget, options: LlamaOptions) -> list[MtpHead]:
    """The target's layers for multi-token prediction, each a head; raises as `LlamaHead`."""
    count = target.model.predictors
    rows = (count - 1) * level_rows(options)
    with ExitStack() as undo:
        heads = []
        for number in range(count):
            heads.append(MtpHead(target, options, number, rows=rows))
            undo.callback(heads[-1].close_all)
        undo.pop_all()
    return heads


def as_one(heads: Sequence[MtpHead], options: LlamaOptions) -> Head:
    """A target's `predictors`, made with these options, behind one face."""
    return heads[0] if len(heads) == 1 else ChainedHead(heads, level_rows(options))


def level_rows(options: LlamaOptions) -> int:
    """Nodes that one level of all trees may have. A later layer reads the levels before its own again."""
    return options.sequences + options.branches


def check_predictors(headers: Sequence[Header]) -> None:
    """Whether llama.cpp can run the layers for multi-token prediction of a model, told before it is loaded from the
    headers of all its parts.

    Raises:
        UsageError: it has none, or none that this build can run.
    """
    first, tensors = headers[0], {tensor.name for header in headers for tensor in header.tensors}
    name, architecture = first.path.name, first.architecture or ""
    count, blocks = (first.number(f"{{arch}}.{key}") or 0 for key in ("nextn_predict_layers", "block_count"))
    there = [f"blk.{blocks - count + layer}.nextn.eh_proj.weight" in tensors for layer in range(count)]
    if not count or not all(there):
        lost = f" ({count} announced, {sum(there)} in the file)" if count else ""
        raise UsageError(
            f"--spec-type draft-mtp: {name} has no layers for multi-token prediction{lost}",
            hint=f"Get a file that was converted with them. {_OTHERS}",
        )
    if architecture not in RUN or (count > 1 and architecture not in CHAINED):
        runs = "one" if architecture in RUN else "none"
        raise UsageError(
            f"--spec-type draft-mtp: {name} has {count} layers for multi-token prediction, and llama.cpp runs {runs} of"
            f" the architecture {architecture}",
            hint=_OTHERS,
        )
