"""DRY ("don't repeat yourself", https://github.com/oobabooga/text-generation-webui/pull/5677): a token that would go on
with a repetition is penalised, the more the longer the repetition already is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localspec.sampling.filters import Scores

Ints = NDArray[np.int32]

_FLOAT32_LOG_MAX = 88.7228391
# A penalty of this size rules a token out, and scores stay finite.
_LARGEST = 1e30
_FLAT_BASE = 1.000001
_NOTHING = np.zeros(1, dtype=np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class Breakers:
    """Sequences of tokens that no repetition reaches across. ``tails``: first token of a sequence → what follows it in
    each of those that begin so, the longest first; ``()`` is a sequence of one token."""

    tails: Mapping[int, tuple[tuple[int, ...], ...]]

    @classmethod
    def of(cls, sequences: Iterable[tuple[int, ...]] = ()) -> Breakers:
        """From sequences of at least one token."""
        tails: dict[int, set[tuple[int, ...]]] = {}
        for head, *tail in sequences:
            tails.setdefault(head, set()).add(tuple(tail))
        return cls({head: tuple(sorted(some, key=len, reverse=True)) for head, some in tails.items()})

    def length(self, tokens: Ints) -> int:
        """How long the longest sequence is that ``tokens`` begin with; 0: they begin with none."""
        for tail in self.tails.get(int(tokens[0]), ()):
            if tuple(tokens[1 : 1 + len(tail)].tolist()) == tail:
                return 1 + len(tail)
        return 0

    def alone(self, token: int) -> bool:
        """Whether the token by itself is a breaker."""
        return () in self.tails.get(token, ())


@dataclass(frozen=True, slots=True, eq=False)
class Repeats:
    """The last ``size`` tokens of a text, and where its end stands in them already. Immutable.

    ``tokens``: ``[n <= size]``, oldest first. ``lengths``: ``[n]``, how many tokens before each place are those at the
    end of the text. ``heads``: ``[n]``, whether a breaker may begin there. A push costs a few operations on arrays of
    this size, and no search.
    """

    size: int
    breakers: Breakers
    tokens: Ints
    lengths: Ints
    heads: NDArray[np.bool_]

    @classmethod
    def of(cls, tokens: Sequence[int], size: int, breakers: Breakers) -> Repeats:
        """After ``tokens``; with ``size`` 0 nothing is looked at."""
        kept = list(tokens[-size:]) if size else []
        heads = np.array([token in breakers.tails for token in kept], dtype=np.bool_)
        lengths = np.array(_suffix_lengths(kept), dtype=np.int32)
        return cls(size, breakers, np.array(kept, dtype=np.int32), lengths, heads)

    def push(self, token: int) -> Repeats:
        if self.size == 0:
            return self
        drop = max(len(self.tokens) + 1 - self.size, 0)
        lengths = np.concatenate((_NOTHING, np.where(self.tokens == token, self.lengths + 1, 0)), dtype=np.int32)
        tokens = np.concatenate((self.tokens, np.array((token,), dtype=np.int32)))
        heads = np.concatenate((self.heads, np.array((token in self.breakers.tails,))))
        return Repeats(self.size, self.breakers, tokens[drop:], lengths[drop:], heads[drop:])

    def continuing(self, least: int) -> tuple[Ints, Ints]:
        """Tokens that would go on with a repetition of ``least`` tokens or more, ascending, and the length of the
        longest such repetition. Breakers of one token are left out."""
        n = len(self.tokens)
        lengths = np.minimum(np.minimum(self.lengths, np.arange(n, dtype=np.int32)), self._since_breaker())
        places = (lengths[1:] >= least).nonzero()[0] + 1
        ids, at = np.unique(self.tokens[places], return_inverse=True)
        longest = np.zeros(len(ids), dtype=np.int32)
        np.maximum.at(longest, at, lengths[places])
        free = np.array([not self.breakers.alone(token) for token in ids.tolist()], dtype=np.bool_)
        return ids[free], longest[free]

    def _since_breaker(self) -> int:
        """Tokens after the last breaker; all, if there is none."""
        places: list[int] = self.heads.nonzero()[0].tolist()
        for place in reversed(places):
            if length := self.breakers.length(self.tokens[place:]):
                return len(self.tokens) - place - length
        return len(self.tokens)


def _suffix_lengths(tokens: list[int]) -> list[int]:
    """For each place how many tokens before it are those at the end: the Z-function of the text read backwards, in
    linear time."""
    n = len(tokens)
    back = tokens[::-1]
    z = [0] * n
    left = right = 0  # the piece [left, right) is the longest-reaching one known to equal the start
    for at in range(1, n):
        length = min(z[at - left], right - at) if at < right else 0
        while at + length < n and back[length] == back[at + length]:
            length += 1
        z[at] = length
        if at + length > right:
            left, right = at, at + length
    return [0, *z[:0:-1]] if n else []


def dry(scores: Scores, repeats: Repeats, *, multiplier: float, base: float, allowed: int) -> Scores:
    """Takes ``multiplier * base ** (length - allowed)`` off the logit of every token that would go on with a repetition
    of ``length >= allowed`` tokens. The power is held within float32."""
    ids, lengths = repeats.continuing(allowed)
    at, there = scores.find(ids)
    if len(at) == 0:
        return scores
    powers = (lengths[there] - allowed).astype(np.float64)
    if base > _FLAT_BASE:
        powers = np.minimum(powers, int(_FLOAT32_LOG_MAX / math.log(base)))
    logits = scores.logits.copy()
    logits[at] -= np.minimum(multiplier * base**powers, _LARGEST)
    return Scores(scores.ids, logits)
