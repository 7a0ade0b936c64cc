"""The token tree: guesses of a drafter, rooted at the token that is pending.

Node 0 is the pending token (drawn, not yet in the cache); every other node is a guess for the position after
its parent's. Parents come before children, and siblings have different tokens, so that a path is named by its
tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

V = TypeVar("V")


class lazy(Generic[V]):
    """``functools.cached_property`` without the lock that it takes before Python 3.12: trees are made every step and
    belong to one thread."""

    def __init__(self, make: Callable[[TokenTree], V]) -> None:
        self._make = make
        self._name = make.__name__
        self.__doc__ = make.__doc__

    @overload
    def __get__(self, tree: None, owner: type) -> lazy[V]: ...

    @overload
    def __get__(self, tree: TokenTree, owner: type) -> V: ...

    def __get__(self, tree: TokenTree | None, owner: type) -> lazy[V] | V:
        if tree is None:
            return self
        value = tree.__dict__[self._name] = self._make(tree)  # found first from now on
        return value


@dataclass(frozen=True)
class TokenTree:
    """An immutable tree of token guesses.

    Args:
        tokens: one id a node; ``tokens[0]`` is the pending token.
        parents: index of each node's parent; -1 for node 0, else smaller than the node's own index.
        scores: the drafter's probability of each node given its parent, in [0, 1]; 1 for node 0.
        sources: name of the drafter of each node; ``""`` for node 0.

    Raises:
        ValueError: the arrays do not describe such a tree.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    scores: tuple[float, ...]
    sources: tuple[str, ...]

    def __post_init__(self) -> None:
        n = len(self.tokens)
        if n == 0 or not n == len(self.parents) == len(self.scores) == len(self.sources):
            raise ValueError("a tree needs a root and arrays of one length")
        if self.parents[0] != -1:
            raise ValueError("node 0 is the root, its parent is -1")
        if n == 1:
            return
        seen: set[tuple[int, int]] = set()
        for node in range(1, n):
            if not 0 <= self.parents[node] < node:
                raise ValueError(f"the parent of node {node} does not come before it")
            edge = (self.parents[node], self.tokens[node])
            if edge in seen:
                raise ValueError(f"token {edge[1]} stands twice under node {edge[0]}")
            seen.add(edge)

    @classmethod
    def root(cls, token: int) -> TokenTree:
        """The tree of plain decoding: nothing but the pending token."""
        tree = cls((token,), (-1,), (1.0,), ("",))
        tree.__dict__.update(depths=(0,), children=({},))  # asked for in every plain step
        return tree

    @classmethod
    def chain(cls, tokens: Sequence[int], scores: Sequence[float] | None = None, source: str = "") -> TokenTree:
        """``tokens[0]`` pending, each later token a child of the one before. ``scores`` fits ``tokens[1:]``."""
        n = len(tokens)
        rest = tuple(scores) if scores is not None else (1.0,) * (n - 1)
        return cls(tuple(tokens), tuple(range(-1, n - 1)), (1.0, *rest), ("",) + (source,) * (n - 1))

    @classmethod
    def grown(
        cls, tokens: Sequence[int], parents: Sequence[int], scores: Sequence[float], sources: Sequence[str]
    ) -> TokenTree:
        """A tree by someone who grew it node by node and kept to the rules: they are not checked again."""
        tree = object.__new__(cls)
        tree.__dict__.update(tokens=tuple(tokens), parents=tuple(parents), scores=tuple(scores), sources=tuple(sources))
        return tree

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def draft_n(self) -> int:
        """Number of guesses: all nodes but the pending one."""
        return len(self.tokens) - 1

    @lazy
    def depths(self) -> tuple[int, ...]:
        """Depth of each node; the root's is 0."""
        depths = [0] * len(self)
        for node in range(1, len(self)):
            depths[node] = depths[self.parents[node]] + 1
        return tuple(depths)

    @lazy
    def children(self) -> tuple[dict[int, int], ...]:
        """For each node: token → child node, in order of node index."""
        children: tuple[dict[int, int], ...] = tuple({} for _ in self.tokens)
        for node in range(1, len(self)):
            children[self.parents[node]][self.tokens[node]] = node
        return children

    @lazy
    def is_chain(self) -> bool:
        return self.parents == tuple(range(-1, len(self) - 1))

    @lazy
    def leaves(self) -> tuple[int, ...]:
        """Nodes without children, in order of index; at least one."""
        return tuple(node for node, kids in enumerate(self.children) if not kids)

    @lazy
    def reach(self) -> tuple[float, ...]:
        """Product of scores from the root: the drafter's probability that the walk gets to a node."""
        reach = [1.0] * len(self)
        for node in range(1, len(self)):
            reach[node] = reach[self.parents[node]] * self.scores[node]
        return tuple(reach)

    def path(self, node: int) -> tuple[int, ...]:
        """Nodes from the root to ``node``, both included."""
        nodes = [node]
        while (node := self.parents[node]) >= 0:
            nodes.append(node)
        return tuple(reversed(nodes))

    def mask(self) -> NDArray[np.bool_]:
        """Ancestor mask ``[node, other]``: true where ``other`` lies on the path to ``node``."""
        mask = np.eye(len(self), dtype=bool)
        for node in range(1, len(self)):
            mask[node] |= mask[self.parents[node]]
        return mask

    def keep(self, nodes: Iterable[int]) -> TokenTree:
        """The subtree of ``nodes``, which must hold the parent of each of its members. Order is kept."""
        chosen = sorted({0, *nodes})
        new = {old: index for index, old in enumerate(chosen)}
        return TokenTree(
            tuple(self.tokens[i] for i in chosen),
            tuple(-1 if i == 0 else new[self.parents[i]] for i in chosen),
            tuple(self.scores[i] for i in chosen),
            tuple(self.sources[i] for i in chosen),
        )

    def rescored(self, scores: Sequence[float]) -> TokenTree:
        """The same guesses, believed otherwise; ``scores`` fits all nodes."""
        tree = TokenTree.grown(self.tokens, self.parents, scores, self.sources)
        for name in ("depths", "children", "is_chain", "leaves"):  # what was found out about its shape
            if name in self.__dict__:
                tree.__dict__[name] = self.__dict__[name]
        return tree

    def top(self, draft_n: int, leaves: int | None = None) -> TokenTree:
        """The ``draft_n`` guesses most likely to be reached, on ``leaves`` branches at most (1: a chain). A child never
        outranks its parent (its reach is not higher, and ties go to the smaller index): the result is a tree again."""
        if draft_n >= self.draft_n and (leaves is None or leaves >= self.draft_n or len(self.leaves) <= leaves):
            return self
        if draft_n < 1:
            return TokenTree.root(self.tokens[0])
        spare = self.draft_n if leaves is None else leaves - 1  # branches beyond the first
        kept, extended = {0}, set()
        for node in sorted(range(1, len(self)), key=lambda node: (-self._ceiling[node], node)):
            parent = self.parents[node]
            if len(kept) > draft_n or parent not in kept:
                continue
            if parent in extended:
                if spare < 1:
                    continue
                spare -= 1
            extended.add(parent)
            kept.add(node)
        return self.keep(kept)

    @lazy
    def _ceiling(self) -> tuple[float, ...]:
        # Scores of a careless drafter may exceed 1; a child may still not outrank its parent.
        ceiling = list(self.reach)
        for node in range(1, len(self)):
            ceiling[node] = min(ceiling[node], ceiling[self.parents[node]])
        return tuple(ceiling)

    def cut(self, depth: int) -> TokenTree:
        """The nodes no deeper than ``depth``."""
        if depth >= max(self.depths):
            return self
        return self.keep(node for node in range(len(self)) if self.depths[node] <= depth)

    def narrow(self, width: int) -> TokenTree:
        """At most ``width`` children a node, the likeliest; what hangs below the others goes with them."""
        if all(len(kids) <= width for kids in self.children):
            return self
        kept = {0}
        for node, kids in enumerate(self.children):
            if node in kept:
                kept.update(sorted(kids.values(), key=lambda kid: (-self.scores[kid], kid))[: max(width, 0)])
        return self if len(kept) == len(self) else self.keep(kept)

    def merge(self, other: TokenTree) -> TokenTree:
        """Both trees over the same root. A guess that both make stands once, with the higher score and the
        source that gave it.

        Raises:
            ValueError: the roots differ.
        """
        if self.tokens[0] != other.tokens[0]:
            raise ValueError("trees of different pending tokens do not merge")
        tokens, parents = list(self.tokens), list(self.parents)
        scores, sources = list(self.scores), list(self.sources)
        index = {(self.parents[node], self.tokens[node]): node for node in range(1, len(self))}
        home = [0] * len(other)
        for node in range(1, len(other)):
            edge = (home[other.parents[node]], other.tokens[node])
            twin = index.get(edge)
            if twin is None:
                twin = index[edge] = len(tokens)
                tokens.append(edge[1])
                parents.append(edge[0])
                scores.append(other.scores[node])
                sources.append(other.sources[node])
            elif other.scores[node] > scores[twin]:
                scores[twin], sources[twin] = other.scores[node], other.sources[node]
            home[node] = twin
        return TokenTree(tuple(tokens), tuple(parents), tuple(scores), tuple(sources))
