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
from localspec.backends.llamacpp.model import LlamaModel
from localspec.backends.llamacpp.options import LlamaOptions
from localspec.backends.llamacpp.target import LlamaTarget
from localspec.errors import UsageError


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
