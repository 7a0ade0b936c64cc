"""Which guesses survive: the two acceptance rules, pure functions of a tree and of what the target says.

``accept_by_draw`` is the default. At each node the target draws its own token exactly as it would without any
draft; the walk goes on while the draw happens to be a child. Every token that goes out is the target's own draw,
so any sampler option is honoured, and with noise tied to the output position the text does not depend on the
drafter at all.

``accept_by_ratio`` is speculative sampling (Leviathan et al., arXiv 2211.17192; Chen et al., arXiv 2302.01318),
over several candidates in turn as in SpecInfer (arXiv 2305.09781): a guess x drawn from q stands with
probability min(1, p(x)/q(x)); after a rejection the target's distribution becomes the normalised residual
max(p - q, 0). Exact in distribution only, and it accepts at least as often when q is close to p.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from localspec.spec.tree import TokenTree

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Outcome of a walk.

    ``path`` are the accepted nodes below the root; ``tokens`` the tokens that go out, one more than ``path``:
    ``tokens[i]`` was decided at ``path[i-1]`` (the root for i = 0), and the last of them is pending now.
    ``tested`` counts the nodes on the walk that had children.
    """

    path: tuple[int, ...]
    tokens: tuple[int, ...]
    tested: int


def accept_by_draw(
    tree: TokenTree,
    state: S,
    draw: Callable[[S, int], int],
    advance: Callable[[S, int, int], S],
) -> Acceptance:
    """Walks from the root: draw from the target at each node, descend while the draw is a child.

    Args:
        tree: the verified tree.
        state: sampler state at the position after the pending token.
        draw: ``draw(state, node)`` → the target's token after ``node``.
        advance: ``advance(state, node, token)`` → the state after ``token`` was decided at ``node``.
    """
    node, tested = 0, 0
    path: list[int] = []
    tokens: list[int] = []
    while True:
        token = draw(state, node)
        tokens.append(token)
        tested += bool(tree.children[node])
        child = tree.children[node].get(token)
        if child is None:
            return Acceptance(tuple(path), tuple(tokens), tested)
        path.append(child)
        node, state = child, advance(state, node, token)


class Residual(Protocol):
    """The target's distribution at one node, whittled down by rejections."""

    def accepts(self, token: int, rank: int) -> bool:
        """Tests the ``rank``-th candidate of the node; a rejection turns this object into the residual."""
        ...

    def draw(self) -> int:
        """A token from what is left."""
        ...


def accept_by_ratio(
    tree: TokenTree,
    state: S,
    target: Callable[[S, int], Residual],
    advance: Callable[[S, int, int], S],
) -> Acceptance:
    """Walks from the root: each child in turn gets its min(1, p/q) test; the first that stands is descended to,
    and if none does a token is drawn from the residual.

    Args:
        tree: the verified tree; the children of a node are in the order they were drawn in.
        state: sampler state at the position after the pending token.
        target: ``target(state, node)`` → the target's distribution after ``node``, knowing the law q that the
            children of ``node`` were drawn from.
        advance: ``advance(state, node, token)`` → the state after ``token`` was decided at ``node``.
    """
    node, tested = 0, 0
    path: list[int] = []
    tokens: list[int] = []
    while True:
        left = target(state, node)
        tested += bool(tree.children[node])
        candidates = enumerate(tree.children[node].items())
        child = next((child for rank, (token, child) in candidates if left.accepts(token, rank)), None)
        if child is None:
            tokens.append(left.draw())
            return Acceptance(tuple(path), tuple(tokens), tested)
        token = tree.tokens[child]
        tokens.append(token)
        path.append(child)
        node, state = child, advance(state, node, token)
