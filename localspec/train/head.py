"""An EAGLE-3 head as a learner."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from localspec.backends.torch.llama import TorchLlama
from localspec.train.eagle3 import Eagle3
from localspec.train.learner import CHAIN, sparse_cross_entropy
from localspec.train.notes import Notes

#: A later guess counts less: it is needed only where those before it were right.
_FADE = 0.8
#: Share of rows that later rounds are taught by.
_LATER = 0.5


class HeadLearner:
    """``head`` learns what ``target`` says. Row t of round k reads token t + 1 + k and guesses token t + 2 + k."""

    def __init__(self, head: Eagle3, target: TorchLlama) -> None:
        self.module, self._embedding = head, target.embedding
        self._ids = torch.tensor(head.ids)
        self._places = torch.full((target.shape.n_vocab,), -1)
        self._places[self._ids] = torch.arange(len(self._ids))

    def loss(self, notes: Notes, rng: np.random.Generator) -> Tensor:
        """As `Learner.loss`: of all rounds, the training-time test."""
        room = notes.tokens.shape[1] - CHAIN - 1  # behind the last token nothing comes
        rows = torch.from_numpy(np.sort(rng.choice(room, max(1, int(room * _LATER)), replace=False)))
        total = torch.zeros(())
        for k, (at, state) in enumerate(self._states(notes, rows)):
            at, state = at[: room + CHAIN - 1], state[:, : room + CHAIN - 1]
            weight = notes.weight[:, at + 2 + k]
            counts = weight > 0
            ids, shares = notes.ids[:, at + 1 + k][counts], notes.shares[:, at + 1 + k][counts]
            each = sparse_cross_entropy(self.module.scores(state[counts]), self._places[ids], shares)
            total = total + _FADE**k * (each * weight[counts]).sum() / weight.sum().clamp(min=1)
        return total

    def guesses(self, notes: Notes) -> Tensor:
        """As `Learner.guesses`."""
        texts, n = notes.tokens.shape
        found = torch.full((texts, n, CHAIN), -1)
        for k, (_, state) in enumerate(self._states(notes, None)):
            rows = min(state.shape[1], n - 2)
            found[:, 2 : 2 + rows, k] = self._ids[self.module.scores(state[:, :rows]).argmax(dim=-1)]
        return found

    def _states(self, notes: Notes, rows: Tensor | None) -> list[tuple[Tensor, Tensor]]:
        embedded = F.embedding(notes.tokens[:, 1:], self._embedding)
        return self.module.states(embedded, notes.features[:, :-1], CHAIN, rows)
