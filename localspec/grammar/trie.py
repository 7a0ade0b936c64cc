"""The tokens of a vocabulary as a tree of bytes, laid out level by level for numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from localspec.grammar.automaton import DEAD, Automaton

Ids = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class _Level:
    """The nodes at one depth: ``first`` is the number of the first. Of each node: its byte; ``start``, ``count`` its
    children, as places in the next level."""

    first: int
    bytes_: NDArray[np.uint8]
    start: Ids
    count: Ids


class TokenTrie:
    """Built once a vocabulary. ``pieces`` are the bytes of each token; one without bytes is never allowed."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = tuple(pieces)
        self._nodes = np.zeros(len(pieces), np.int32)  # of each token; 0 is the root
        self._levels = self._build()
        self._n_nodes = 1 + sum(len(level.bytes_) for level in self._levels)

    def _build(self) -> list[_Level]:
        text = np.frombuffer(b"".join(self.pieces), np.uint8)
        sizes = np.array([len(piece) for piece in self.pieces], np.int64)
        begins = np.cumsum(sizes) - sizes
        levels: list[_Level] = []
        tokens = np.flatnonzero(sizes)
        parents, n_parents, first = np.zeros(len(tokens), np.int64), 1, 1
        while len(tokens):
            depth = len(levels)
            keys = parents * 256 + text[begins[tokens] + depth]
            nodes, place = np.unique(keys, return_inverse=True)
            if levels:
                count = np.bincount(nodes // 256, minlength=n_parents).astype(np.int32)
                levels[-1] = replace(levels[-1], start=(np.cumsum(count) - count).astype(np.int32), count=count)
            empty = np.zeros(len(nodes), np.int32)
            levels.append(_Level(first, (nodes % 256).astype(np.uint8), empty, empty))
            ends = sizes[tokens] == depth + 1
            self._nodes[tokens[ends]] = first + place[ends]
            tokens, parents = tokens[~ends], place[~ends]
            n_parents, first = len(nodes), first + len(nodes)
        return levels

    def allowed(self, automaton: Automaton, state: int) -> NDArray[np.bool_]:
        """``[n_tokens]``: whether the automaton lives through the bytes of each token."""
        alive = np.zeros(self._n_nodes, np.bool_)
        if not self._levels:
            return alive[self._nodes]
        here = np.arange(len(self._levels[0].bytes_))
        states = np.full(len(here), state, np.int32)
        for depth, level in enumerate(self._levels):
            states = automaton.steps(states, automaton.kinds[level.bytes_[here]])
            living = states != DEAD
            here, states = here[living], states[living]
            alive[level.first + here] = True
            counts = level.count[here]
            if depth + 1 == len(self._levels) or not len(here):
                break
            states = np.repeat(states, counts)
            shift = np.cumsum(counts) - counts
            here = np.repeat(level.start[here] - shift, counts) + np.arange(len(states))
        return alive[self._nodes]
