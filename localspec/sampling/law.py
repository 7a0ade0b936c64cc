"""A finite distribution over tokens: what the filters left."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Logits = NDArray[np.float32] | NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Law:
    """``ids``: ``[n]``, distinct, ascending. ``logp``: ``[n]``, natural logs of probabilities that sum to 1,
    all finite."""

    ids: NDArray[np.int32]
    logp: NDArray[np.float64]

    @classmethod
    def certain(cls, token: int) -> Law:
        """All on one token."""
        return cls(np.array([token], dtype=np.int32), np.zeros(1))

    def __len__(self) -> int:
        return len(self.ids)

    def p(self, token: int) -> float:
        """Probability of ``token``; 0 if it is not in the law."""
        at = int(np.searchsorted(self.ids, token))
        if at == len(self.ids) or self.ids[at] != token:
            return 0.0
        return float(np.exp(self.logp[at]))

    def top(self, k: int) -> tuple[tuple[int, float], ...]:
        """The ``k`` likeliest tokens with their probabilities, best first; of equals the lower id first."""
        return self._ranked(self.logp, k)

    def draw(self, noise: NDArray[np.float64]) -> int:
        """The token that Gumbel ``noise`` (``[n]``, in the order of ``ids``) draws."""
        return int(self.ids[np.argmax(self.logp + noise)])

    def draws(self, noise: NDArray[np.float64], k: int) -> tuple[tuple[int, float], ...]:
        """Up to ``k`` tokens drawn one after the other without replacement, with their probabilities in the
        whole law (Gumbel top-k, arXiv 1903.06059). The first is ``draw(noise)``."""
        return self._ranked(self.logp + noise, k)

    def _ranked(self, keys: NDArray[np.float64], k: int) -> tuple[tuple[int, float], ...]:
        order = np.arange(len(keys))
        if 0 < k < len(keys):
            order = np.flatnonzero(keys >= np.partition(keys, len(keys) - k)[len(keys) - k])
        order = order[np.argsort(-keys[order], kind="stable")][: max(k, 0)]
        chances = np.exp(self.logp[order])
        return tuple(zip(self.ids[order].tolist(), chances.tolist(), strict=True))
