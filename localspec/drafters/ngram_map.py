"""``ngram-map-k`` and ``ngram-map-k4v``: prompt lookup that remembers what its guesses were worth.

Both are llama.cpp's (``common/ngram-map``): the last n tokens are a key, the m tokens that followed it a value.
Adapted: llama.cpp keeps counts beside the text; here they are read off the text, so that a conversation that is cut
back or forked has exactly those it would have had.
"""

from __future__ import annotations

from collections.abc import Sequence

from localspec.control.price import Price
from localspec.drafters.best_first import chain
from localspec.drafters.ngram import Lookup, what_followed
from localspec.spec.tree import TokenTree

MAP_K, MAP_K4V = "ngram-map-k", "ngram-map-k4v"
_VALUES = 4  # continuations of one key
_CLEAR = 3  # times that a chain's value must have come for each time that another came
_RECENT = 64  # places of a key that are counted


class NgramMapK(Lookup):
    """A chain of what followed the key the last time. It is no longer than what the same guess would have been worth
    then, and one token more, so that it can grow."""

    name = MAP_K

    def _guesses(self, tokens: Sequence[int], places: Sequence[int], depth: int, price: Price) -> TokenTree:
        last, n = places[-1], self._options.size_n
        depth = min(depth, len(tokens) - 1 - last)
        held = depth if len(places) == 1 else _agreed(tokens, places[-2], last, depth)
        # As for a match of that length: L / (L + 1). What parted the last time is as good as not.
        scored = (
            (tokens[last + 1 + level], (n + level) / (n + level + 1) if level < held else 0.5)
            for level in range(min(depth, held + 1))
        )
        return chain(tokens[-1], scored, price, self.name)


class NgramMapK4V(Lookup):
    """Up to four different continuations of the key, by how often they came. As a chain only if one of them came
    three times as often as the others together."""

    name = MAP_K4V

    def _guesses(self, tokens: Sequence[int], places: Sequence[int], depth: int, price: Price) -> TokenTree:
        values: dict[tuple[int, ...], list[int]] = {}  # value → its places
        for place in places[-_RECENT:]:
            values.setdefault(tuple(tokens[place + 1 : place + 1 + depth]), []).append(place)
        # The last ones may run into the end of the text; they count where there are no others.
        whole = {value: found for value, found in values.items() if len(value) == depth} or values
        best = sorted(whole.values(), key=lambda found: (-len(found), -found[-1]))[:_VALUES]
        others = sum(map(len, best[1:]))
        if price.limits.width == 1 and len(best[0]) < _CLEAR * others:
            return TokenTree.root(tokens[-1])
        return what_followed(tokens, [(found[-1], float(len(found))) for found in best], depth, price, self.name)


def _agreed(tokens: Sequence[int], one: int, other: int, most: int) -> int:
    """How many of the ``most`` tokens after two places are the same."""
    return next((i for i in range(most) if tokens[one + 1 + i] != tokens[other + 1 + i]), most)
