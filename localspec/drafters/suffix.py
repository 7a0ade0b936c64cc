"""``suffix``: what followed wherever the text ended like this before.

SuffixDecoding (arXiv 2411.04975) over a conversation: the longest end of the text that occurred before is found in
constant time, however long the match or the text; its continuations are weighted by how often they came, and the more
of the text matches, the further ahead is guessed.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from localspec.control.price import Price
from localspec.drafters.automaton import SuffixAutomaton
from localspec.drafters.base import Ask, Draft, TextDrafter
from localspec.spec.tree import TokenTree

NAME = "suffix"


@dataclass(frozen=True, slots=True)
class SuffixOptions:
    """``min_match`` tokens must match; up to ``factor`` tokens are guessed for each that does."""

    min_match: int = 1
    factor: float = 8.0


@dataclass(slots=True)
class _Past:
    """One conversation: its text as far as it was read."""

    read: int = 0
    automaton: SuffixAutomaton = field(default_factory=SuffixAutomaton)


class Suffix(TextDrafter):
    """State is one automaton a conversation."""

    name = NAME

    def __init__(self, options: SuffixOptions | None = None) -> None:
        self._options = options or SuffixOptions()
        self._pasts: dict[int, _Past] = {}

    def open(self, seq: int) -> None:
        self._pasts[seq] = _Past()

    def close(self, seq: int) -> None:
        del self._pasts[seq]

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return [self._propose(ask) for ask in asks]

    def _propose(self, ask: Ask) -> Draft:
        automaton = self._caught_up(self._pasts[ask.seq], ask.tokens)
        for state, length in automaton.matches():
            if length < self._options.min_match:
                break
            if automaton.followers(state):
                depth = min(ask.price.limits.depth, max(int(self._options.factor * length), 1))
                return Draft(_tree(automaton, state, length, ask.tokens[-1], depth, ask.price))
        return Draft.nothing(ask)

    def _caught_up(self, past: _Past, tokens: Sequence[int]) -> SuffixAutomaton:
        for token in tokens[past.read :]:
            past.automaton.add(token)
        past.read = len(tokens)
        return past.automaton

    def truncate(self, seq: int, n: int) -> None:
        # An automaton forgets nothing, so it is made anew, at the next guess. What was cut off may belong to another
        # conversation that had the place before: it is no source.
        if n < self._pasts[seq].read:
            self._pasts[seq] = _Past()

    def close_all(self) -> None:
        self._pasts.clear()


def _tree(automaton: SuffixAutomaton, state: int, length: int, pending: int, depth: int, price: Price) -> TokenTree:
    """Continuations of ``state``, the likeliest first, until the nodes or what pays runs out.

    A child's score is its share of the times the run occurred, less one unit of doubt for every token that matched: a
    single match of length L is believed to L / (L + 1). The first level is proposed at any price: whether such guesses
    hold is learnt for free.
    """
    limits = price.limits
    tokens, parents, scores = [pending], [-1], [1.0]
    # The likeliest open node first: (-reach, node, state, length of its match, depth).
    open_nodes = [(-1.0, 0, state, length, 0)]
    while open_nodes and len(tokens) <= limits.nodes:
        reach, node, at, matched, level = heapq.heappop(open_nodes)
        followers = automaton.followers(at)
        total = sum(times for _, times, _ in followers)
        for token, times, to in followers[: limits.width]:
            score = times / total * matched / (matched + 1)
            believed = -reach * price.believed(score)
            if score < limits.p_min or (node and not price.pays(believed)):
                continue
            tokens.append(token)
            parents.append(node)
            scores.append(score)
            if level + 1 < depth:
                heapq.heappush(open_nodes, (-believed, len(tokens) - 1, to, matched + 1, level + 1))
    tree = TokenTree.grown(tokens, parents, scores, ("",) + (NAME,) * (len(tokens) - 1))
    return tree.top(limits.nodes, limits.leaves)
