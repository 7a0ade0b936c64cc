"""Layers for multi-token prediction (MTP, NextN), which some models carry behind those that make the text; some files
hold these layers and no others.

Each is a head: a context over the weights that runs that one layer. Where a model has several, the first guesses
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
from localspec.backends.llamacpp.hooks import CHAINED, PREDICTING
from localspec.backends.llamacpp.model import LlamaModel
from localspec.backends.llamacpp.options import LlamaOptions
from localspec.backends.llamacpp.target import LlamaTarget
from localspec.errors import UsageError
from localspec.hub.header import Header

#: Architectures whose layers llama.cpp runs, where what was read cannot be taken back.
RECURRENT = frozenset({"bailingmoe3", "glm5-next", "nemotron_h_moe", "qwen35", "qwen35moe", "qwen3next"})
_OTHERS = "Use a draft model or a head (-md), or n-grams (--spec-type)."


class MtpHead(LlamaHead):
    """The layer ``number`` for multi-token prediction of ``model``, counted from 0; ``rows`` more in a pass than usual.
    The model is the target's own, or one beside it, which goes with the first layer."""

    def __init__(
        self, model: LlamaModel, options: LlamaOptions, target: LlamaTarget, number: int = 0, *, rows: int = 0
    ) -> None:
        self._number = number
        super().__init__(model, options, target, (CARRIED,), rows=rows)

    def _make_context(self, n_ids: int) -> LlamaContext:
        context = LlamaContext(self._model, self._options, n_ids, self._flag, predictors=True)
        self._hooks.give_states(context.handle)
        self._hooks.pick_predictor(context.handle, self._number)
        return context

    def encode(self, seq: int, features: Mapping[int, NDArray[np.float32]]) -> NDArray[np.float32]:
        return features[CARRIED].copy()

    def _free_model(self) -> None:
        if self._model is not self._target.model and not self._number:
            super()._free_model()


def predictors(model: LlamaModel, options: LlamaOptions, target: LlamaTarget) -> list[MtpHead]:
    """The layers for multi-token prediction of ``model`` for ``target``, each a head.

    Raises:
        UsageError: they are for another target; else as `LlamaHead`.
    """
    check_target(model, target.model)
    count = model.predictors
    rows = (count - 1) * level_rows(options)
    with ExitStack() as undo:
        heads = []
        for number in range(count):
            heads.append(MtpHead(model, options, target, number, rows=rows))
            undo.callback(heads[-1].close_all)
        undo.pop_all()
    return heads


def as_one(heads: Sequence[MtpHead], options: LlamaOptions) -> Head:
    """`predictors` that were made with these options, behind one face."""
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
    if architecture in RECURRENT:
        raise UsageError(
            f"--spec-type draft-mtp: {name} has recurrent layers, which cannot take guesses back", hint=_OTHERS
        )
    if architecture not in PREDICTING or (count > 1 and architecture not in CHAINED):
        driven = "one" if architecture in PREDICTING else "none"
        raise UsageError(
            f"--spec-type draft-mtp: {name} has {count} layers for multi-token prediction, and of the architecture"
            f" {architecture} {driven} can be run",
            hint=_OTHERS,
        )


def check_target(model: LlamaModel, target: LlamaModel) -> None:
    """Whether a model's layers for multi-token prediction read what the target hands out.

    Raises:
        UsageError: they are for another.
    """
    ours, theirs = ((one.architecture, one.n_embd) for one in (model, target))
    if ours != theirs:
        raise UsageError(
            f"{model.path.name} predicts for a target of architecture {ours[0]} and width {ours[1]},"
            f" {target.path.name} is {theirs[0]} of width {theirs[1]}",
            hint="Use the file that was made for this target, or leave -md out.",
        )
