"""``ngram-simple``: prompt lookup over the whole conversation.

The last tokens of the text are looked up in the text itself; what followed there is the guess (prompt lookup
decoding, Saxena 2023; ``ngram-simple`` in llama.cpp). Where several earlier places match, their continuations are
merged into one tree, weighted by how long the match is.
"""

from __future__ import annotations

from collections.abc import Sequence

from localspec.control.price import Price
from localspec.drafters.base import Ask, Draft, TextDrafter
from localspec.drafters.options import NgramOptions
from localspec.spec.tree import TokenTree

NAME = "ngram-simple"


class NgramIndex:
    """Where every run of ``n`` tokens of one conversation ends; grows and is cut back with the text."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._ends: dict[tuple[int, ...], list[int]] = {}
        self._keys: list[tuple[int, ...]] = []  # key of the run that ends at n - 1 + index

    def extend(self, tokens: Sequence[int]) -> None:
        """Takes in what ``tokens`` has beyond the text known so far."""
        n = self._n
        for end in range(n - 1 + len(self._keys), len(tokens)):
            key = tuple(tokens[end - n + 1 : end + 1])
            self._keys.append(key)
            self._ends.setdefault(key, []).append(end)

    def truncate(self, n: int) -> None:
        """Forgets every run that ends at position ``n`` or later."""
        while self._keys and self._n - 1 + len(self._keys) > n:
            key = self._keys.pop()
            ends = self._ends[key]
            ends.pop()
            if not ends:
                del self._ends[key]

    def matches(self, tokens: Sequence[int]) -> list[int]:
        """Earlier places where the last ``n`` tokens end, most recent last."""
        if len(tokens) < self._n:
            return []
        here = len(tokens) - 1
        return [end for end in self._ends.get(tuple(tokens[-self._n :]), ()) if end < here]


class Lookup(TextDrafter):
    """What drafters share that look up the last ``size_n`` tokens. State is one index a conversation."""

    def __init__(self, options: NgramOptions | None = None) -> None:
        self._options = options or NgramOptions()
        self._indexes: dict[int, NgramIndex] = {}

    def open(self, seq: int) -> None:
        self._indexes[seq] = NgramIndex(self._options.size_n)

    def close(self, seq: int) -> None:
        del self._indexes[seq]

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return [self._propose(ask) for ask in asks]

    def _propose(self, ask: Ask) -> Draft:
        index, tokens = self._indexes[ask.seq], ask.tokens
        index.extend(tokens)
        places = index.matches(tokens)
        if len(places) < self._options.min_hits:
            return Draft.nothing(ask)
        return Draft(self._guesses(tokens, places, min(ask.price.limits.depth, self._options.size_m), ask.price))

    def _guesses(self, tokens: Sequence[int], places: Sequence[int], depth: int, price: Price) -> TokenTree:
        """A tree of up to ``depth`` levels over the last token, by what followed ``places``, the most recent last."""
        raise NotImplementedError

    def truncate(self, seq: int, n: int) -> None:
        self._indexes[seq].truncate(n)

    def close_all(self) -> None:
        self._indexes.clear()


class NgramSimple(Lookup):
    """Guesses what followed the last times, the more alike the past was the rather."""

    name = NAME

    def _guesses(self, tokens: Sequence[int], places: Sequence[int], depth: int, price: Price) -> TokenTree:
        recent = [(place, float(self._match_length(tokens, place))) for place in places[-self._options.places :]]
        return what_followed(tokens, recent, depth, price, NAME)

    def _match_length(self, tokens: Sequence[int], place: int, longest: int = 32) -> int:
        """How many tokens before ``place`` and before the end of the text are the same."""
        n, here = self._options.size_n, len(tokens) - 1
        while n < longest and n <= place and tokens[place - n] == tokens[here - n]:
            n += 1
        return n


def what_followed(
    tokens: Sequence[int], places: Sequence[tuple[int, float]], depth: int, price: Price, source: str
) -> TokenTree:
    """What followed ``places`` (position, weight), as a tree of up to ``depth`` levels over the last token.

    A child's score is its share of the weight, less one unit of doubt: a single match of length L is believed to
    L / (L + 1). The first level is proposed at any price: whether such guesses hold is learnt for free.
    """
    limits = price.limits
    guesses, parents, scores = [tokens[-1]], [-1], [1.0]
    level: list[tuple[int, Sequence[tuple[int, float]], float]] = [(0, places, 1.0)]
    for _ in range(depth):
        deeper: list[tuple[int, Sequence[tuple[int, float]], float]] = []
        for node, ends, reach in level:
            followers: dict[int, list[tuple[int, float]]] = {}
            for end, weight in ends:
                if end + 1 < len(tokens):
                    followers.setdefault(tokens[end + 1], []).append((end + 1, weight))
            weights = {token: sum(weight for _, weight in found) for token, found in followers.items()}
            total = sum(weights.values()) + 1.0
            for token in sorted(weights, key=lambda token: -weights[token])[: limits.width]:
                score = weights[token] / total
                believed = reach * price.believed(score)
                if score < limits.p_min or (node and not price.pays(believed)):
                    continue
                deeper.append((len(guesses), followers[token], believed))
                guesses.append(token)
                parents.append(node)
                scores.append(score)
        level = deeper
    tree = TokenTree.grown(guesses, parents, scores, ("",) + (source,) * (len(guesses) - 1))
    return tree.top(limits.nodes, limits.leaves)
