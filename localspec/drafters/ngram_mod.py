"""``ngram-mod``: a pool of hashes of n tokens, each with the token that came next.

llama.cpp's (``common/ngram-mod``): one look-up in constant time gives one token, and the hash rolls on over the guess,
so that guesses are as long as what is known. Adapted: the pool belongs to its conversation, where llama.cpp shares one
among all; it grows with the text instead of being overwritten, and goes back with it. A corpus that the user names is
looked at where the conversation knows nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from localspec.drafters.base import Ask, Draft, TextDrafter
from localspec.drafters.best_first import chain
from localspec.drafters.options import ModOptions

NAME = "ngram-mod"
_BASE, _MODULUS = 6364136223846793005, 2**61 - 1


class HashPool:
    """What came last after every run of ``n`` tokens of one text."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._out = pow(_BASE, n - 1, _MODULUS)  # weight of the token that leaves the window
        self._trail: list[tuple[int, int | None]] = []  # by token: hash of the run before it, and what it replaced
        self.after: dict[int, int] = {}

    def read_on(self, tokens: Sequence[int]) -> None:
        """Takes in what ``tokens`` has beyond the text known so far."""
        start = self._n + len(self._trail)
        if start >= len(tokens):
            return
        key = self.key(tokens[start - self._n : start])
        for i in range(start, len(tokens)):
            self._trail.append((key, self.after.get(key)))
            self.after[key] = tokens[i]
            key = self.roll(key, tokens[i - self._n], tokens[i])

    def truncate(self, n: int) -> None:
        """Goes back to the first ``n`` tokens."""
        while self._n + len(self._trail) > max(n, self._n):
            key, before = self._trail.pop()
            if before is None:
                del self.after[key]
            else:
                self.after[key] = before

    def key(self, run: Sequence[int]) -> int:
        key = 0
        for token in run:
            key = (key * _BASE + token + 1) % _MODULUS
        return key

    def roll(self, key: int, out: int, token: int) -> int:
        """The hash of the run that has lost its first token ``out`` and won ``token``."""
        return ((key - (out + 1) * self._out) * _BASE + token + 1) % _MODULUS

    def run(self, tokens: Sequence[int], most: int, others: Mapping[int, int]) -> list[int]:
        """What comes after ``tokens``, hash by hash, by this pool and else by ``others``: ``most`` tokens or fewer."""
        window = list(tokens[-self._n :])
        if len(window) < self._n:
            return []
        key = self.key(window)
        for i in range(most):
            token = self.after.get(key)
            if token is None and (token := others.get(key)) is None:
                break
            window.append(token)
            key = self.roll(key, window[i], token)
        return window[self._n :]


class NgramMod(TextDrafter):
    """State is one pool a conversation.

    Args:
        options: lengths.
        corpus: texts that all conversations may draw on.
    """

    name = NAME

    def __init__(self, options: ModOptions | None = None, corpus: Sequence[Sequence[int]] = ()) -> None:
        self._options = options or ModOptions()
        self._corpus: dict[int, int] = {}
        for text in corpus:
            pool = HashPool(self._options.n_match)
            pool.read_on(text)
            self._corpus |= pool.after
        self._pools: dict[int, HashPool] = {}

    def open(self, seq: int) -> None:
        self._pools[seq] = HashPool(self._options.n_match)

    def close(self, seq: int) -> None:
        del self._pools[seq]

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return [self._propose(ask) for ask in asks]

    def _propose(self, ask: Ask) -> Draft:
        pool, options = self._pools[ask.seq], self._options
        pool.read_on(ask.tokens)
        most = min(options.n_max, ask.price.limits.depth)
        known = pool.run(ask.tokens, max(most, options.n_min), self._corpus)
        if not known or len(known) < options.n_min:
            return Draft.nothing(ask)
        # As for a match of that length: L / (L + 1).
        scored = [(token, n / (n + 1)) for n, token in enumerate(known[:most], options.n_match)]
        return Draft(chain(ask.tokens[-1], scored, ask.price, NAME))

    def truncate(self, seq: int, n: int) -> None:
        self._pools[seq].truncate(n)

    def close_all(self) -> None:
        self._pools.clear()
