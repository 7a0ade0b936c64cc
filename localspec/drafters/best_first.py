"""A tree of guesses that need no passes, the likeliest first."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TypeVar

from localspec.control.price import Price
from localspec.spec.tree import TokenTree

State = TypeVar("State")
#: What may follow, the likeliest first: (token, the chance that it holds, the state after it).
Children = Callable[[State], Iterable[tuple[int, float, State]]]


def grow(pending: int, depth: int, price: Price, source: str, state: State, children: Children[State]) -> TokenTree:
    """A tree of up to ``depth`` levels over ``pending``, whose children are those of ``state``; it grows where it is
    likeliest until the nodes or what pays runs out. The first level is proposed at any price: whether such guesses
    hold is learnt for free.
    """
    limits = price.limits
    tokens, parents, scores = [pending], [-1], [1.0]
    open_nodes = [(-1.0, 0, 0, state)]  # -reach, node, level, state
    while open_nodes and len(tokens) <= limits.nodes:
        reach, node, level, at = heapq.heappop(open_nodes)
        for token, score, to in islice(children(at), limits.width):
            believed = -reach * price.believed(score)
            if score < limits.p_min or (node and not price.pays(believed)):
                continue
            tokens.append(token)
            parents.append(node)
            scores.append(score)
            if level + 1 < depth:
                heapq.heappush(open_nodes, (-believed, len(tokens) - 1, level + 1, to))
    tree = TokenTree.grown(tokens, parents, scores, ("",) + (source,) * (len(tokens) - 1))
    return tree.top(limits.nodes, limits.leaves)


def chain(pending: int, scored: Iterable[tuple[int, float]], price: Price, source: str) -> TokenTree:
    """As `grow`, where only one guess is known for each level: (token, the chance that it holds)."""
    limits = price.limits
    tokens, scores, reach = [pending], list[float](), 1.0
    for token, score in islice(scored, min(limits.depth, limits.nodes)):
        reach *= price.believed(score)
        if score < limits.p_min or (scores and not price.pays(reach)):
            break
        tokens.append(token)
        scores.append(score)
    return TokenTree.chain(tokens, scores, source)
