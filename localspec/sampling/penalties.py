"""Repetition, frequency and presence penalties, and the window of tokens they count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localspec.sampling.filters import Scores

Tokens = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """The last ``size`` tokens of a text, counted. Immutable: a push makes a new window, so a guess that is
    taken back leaves nothing behind.

    ``tokens``: ``[<= size]``, oldest first; ``ids``: ``[n]``, the distinct ones, ascending; ``counts``:
    ``[n]``.
    """

    size: int
    tokens: Tokens
    ids: Tokens
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, tokens: Sequence[int], size: int) -> Window:
        """The window after ``tokens``; ``size`` 0 counts nothing."""
        kept = np.array(tokens[-size:] if size else (), dtype=np.int32)
        ids, counts = np.unique(kept, return_counts=True)
        return cls(size, kept, ids, counts)

    def push(self, token: int) -> Window:
        if self.size == 0:
            return self
        ids, counts = _count(self.ids, self.counts, token, 1)
        start = len(self.tokens) + 1 - self.size
        if start > 0:
            ids, counts = _count(ids, counts, int(self.tokens[0]), -1)
        tokens = np.concatenate((self.tokens[max(start, 0) :], np.array((token,), dtype=np.int32)))
        return Window(self.size, tokens, ids, counts)


def _count(ids: Tokens, counts: NDArray[np.int64], token: int, by: int) -> tuple[Tokens, NDArray[np.int64]]:
    at = int(ids.searchsorted(token))
    if at == len(ids) or ids[at] != token:
        new = np.array((token,), dtype=np.int32), np.array((by,), dtype=np.int64)
        return np.concatenate((ids[:at], new[0], ids[at:])), np.concatenate((counts[:at], new[1], counts[at:]))
    if counts[at] + by == 0:
        return np.concatenate((ids[:at], ids[at + 1 :])), np.concatenate((counts[:at], counts[at + 1 :]))
    counts = counts.copy()
    counts[at] += by
    return ids, counts


def penalise(scores: Scores, window: Window, *, repeat: float, frequency: float, presence: float) -> Scores:
    """For a token that stands c > 0 times in ``window``: a logit above 0 is divided by ``repeat``, another
    one multiplied, then c · ``frequency`` + ``presence`` is taken off."""
    at, there = scores.find(window.ids)
    if len(at) == 0:
        return scores
    old = scores.logits[at].astype(np.float64)
    new = np.where(old > 0, old / repeat, old * repeat) - (window.counts[there] * frequency + presence)
    logits = scores.logits.copy()
    logits[at] = new
    return Scores(scores.ids, logits)
