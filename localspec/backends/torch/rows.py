"""Rows of a pass, which may lie on a card: which token is the likeliest is computed there, and rows come here when one
is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from localspec.backends.base import Row
from localspec.backends.torch.place import array
from localspec.sampling import SamplerState

Whole = NDArray[np.float32]
Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Likeliest:
    """Of each row the likeliest token, of equals the lowest, and its score."""

    tokens: Ids
    peaks: Whole


@dataclass(slots=True)
class Scores:
    """Logits of all rows of a pass.

    Args:
        there: as they were computed.
        by_token: makes ``[rows, n_vocab]`` of them, when they are here.
        here: that, if it is known; else it is fetched when a row is asked for.
        best: if it is known.

    ``asked``: whether a row was.
    """

    there: Tensor
    by_token: Callable[[Whole], Whole]
    here: Whole | None = None
    best: Likeliest | None = None
    asked: bool = False

    def row(self, at: int) -> Row:
        self.asked = True
        if self.here is None:
            self.here = self.by_token(array(self.there))
        row: Row = self.here[at]
        return row


@dataclass(frozen=True, slots=True)
class TorchRows:
    """Rows of one work item: that of its node ``first``, and those of the nodes behind it, begin at ``start`` among all
    ``scores``."""

    scores: Scores
    start: int
    first: int
    features: Mapping[int, NDArray[np.float32]] = field(default_factory=dict)

    def logits(self, node: int) -> Row:
        return self.scores.row(self._at(node))

    def draw(self, node: int, state: SamplerState) -> int:
        best, at = self.scores.best, self._at(node)
        if best is not None and state.takes(token := int(best.tokens[at]), float(best.peaks[at])):
            return token
        return state.draw(self.logits(node))

    def _at(self, node: int) -> int:
        if node < self.first:
            raise KeyError(f"no logits were asked for at node {node}")
        return self.start + node - self.first
