"""What every kind of drafter has to say to be trained and measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from localspec.train.notes import Notes

#: Tokens of the chain whose acceptance is measured.
CHAIN = 4


class Learner(Protocol):
    """A drafter in training."""

    @property
    def module(self) -> nn.Module: ...

    def loss(self, notes: Notes, rng: np.random.Generator) -> Tensor:
        """How far its guesses are from the target's scores; ``rng`` may choose what it is asked."""

    def guesses(self, notes: Notes) -> Tensor:
        """``[texts, n, CHAIN]``: entry (j, k) is the guess of token j + k in the chain that starts at j, given that the
        guesses before it are the text; -1 where there is none."""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Of chains of `CHAIN` guesses on texts never trained on: the share whose first k + 1 guesses were what the target
    drew."""

    by_position: tuple[float, ...]

    @property
    def length(self) -> float:
        """Mean tokens a step: those accepted, and the target's own."""
        return 1 + sum(self.by_position)


@torch.no_grad()
def acceptance(learner: Learner, held: list[Notes]) -> Acceptance:
    """Measures ``learner`` on drawn tokens of ``held``, at which its guesses are kept as the engine keeps them."""
    right, chains = torch.zeros(CHAIN), 0
    for notes in held:
        starts = notes.tokens.shape[1] - CHAIN + 1
        guesses = learner.guesses(notes)
        drawn = torch.stack([notes.weight[:, k : k + starts] > 0 for k in range(CHAIN)]).all(dim=0)
        truth = torch.stack([notes.tokens[:, k : k + starts] for k in range(CHAIN)], dim=-1)
        drawn &= guesses[:, :starts, 0] >= 0
        kept = (guesses[:, :starts] == truth).cumprod(dim=-1)[drawn]
        right += kept.sum(dim=0)
        chains += len(kept)
    return Acceptance(tuple((right / max(1, chains)).tolist()))


def sparse_cross_entropy(scores: Tensor, places: Tensor, shares: Tensor) -> Tensor:
    """Cross entropy of ``scores`` ``[n, ids]`` against ``shares`` ``[n, top]`` of the ids at ``places``, -1 for one
    that cannot be guessed: a row counts by as much as can."""
    guessable = places >= 0
    logs = torch.log_softmax(scores, dim=-1).gather(-1, places.clamp(min=0))
    return -(logs * shares * guessable).sum(dim=-1)
