"""The price of a guess.

A drafter does not know the controller; it is told what its guesses cost and what a token is worth, and stops where
a guess no longer pays: ``reach · token_s > row_s``. With nothing measured, rows are free and only the limits bind.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from localspec.spec.tree import TokenTree


@dataclass(frozen=True, slots=True)
class Limits:
    """Hard limits of one tree: depth, draft nodes, children a node, the probability a path ends under, and branches
    (``None``: as many as the nodes make)."""

    depth: int
    nodes: int
    width: int = 1
    p_min: float = 0.0
    leaves: int | None = None

    def within(self, room: Limits) -> Limits:
        """What of this fits into ``room``."""
        return Limits(
            max(min(self.depth, room.depth), 0),
            max(min(self.nodes, room.nodes), 0),
            max(min(self.width, room.width), 1),
            self.p_min,
            room.leaves,
        )

    def fit(self, tree: TokenTree) -> TokenTree:
        """The likeliest part of ``tree`` within the limits."""
        n = tree.draft_n
        if not n or (n <= self.depth and n <= self.nodes and tree.is_chain):
            return tree
        return tree.cut(self.depth).narrow(self.width).top(self.nodes, self.leaves)

    @property
    def none(self) -> bool:
        return self.depth == 0 or self.nodes == 0


@dataclass(frozen=True, slots=True)
class Price:
    """``row_s`` seconds for one more verified row, ``pass_s`` for one more pass of the draft model (for all that share
    it), ``token_s`` the time a token is worth now, ``belief`` what the drafter's own scores are worth (none: they are
    taken at their word). A drafter with a finite ``until`` is asked after the others, and only if their guesses are
    believed to bring fewer tokens than that."""

    limits: Limits
    row_s: float = 0.0
    pass_s: float = 0.0
    token_s: float = 1.0
    belief: Callable[[float], float] | None = None
    until: float = math.inf

    def believed(self, score: float) -> float:
        """The probability that a guess of this score holds."""
        return score if self.belief is None else self.belief(score)

    def brought(self, tree: TokenTree) -> float:
        """Tokens that the likeliest path of ``tree`` is believed to bring."""
        reach = [1.0] * len(tree)
        best = [0.0] * len(tree)
        for node in range(1, len(tree)):
            parent = tree.parents[node]
            reach[node] = reach[parent] * self.believed(tree.scores[node])
            best[node] = best[parent] + reach[node]
        return max(best)

    def pays(self, reach: float) -> bool:
        """Whether a guess that the walk gets to with probability ``reach`` is worth its row."""
        return reach * self.token_s > self.row_s

    def pass_pays(self, reach: float) -> bool:
        """Whether another pass of the draft model can pay, over guesses whose reaches add up to this."""
        return reach * self.token_s > self.pass_s
