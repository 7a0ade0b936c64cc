"""``lookahead``: n-grams that the target would have said.

After Lookahead Decoding (arXiv 2402.02057): its pool of n-grams, filled by the target itself from guesses that need not
hold. Adapted to verified trees: there is no window of rows that are decoded only to fill the pool. Its Jacobi step is
taken on what was verified anyway: after each *rejected* guess of whatever drafter, the row says what would have come
next, and that is kept with the tokens before it (as Token Recycling does, arXiv 2408.08696). So with plain steps alone
the pool is the text's own n-grams. What is kept is the target's likeliest token, also where it draws.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from localspec.backends.base import Rows
from localspec.drafters.base import Ask, Draft, TextDrafter
from localspec.drafters.best_first import grow
from localspec.spec.tree import TokenTree

NAME = "lookahead"
_CONTEXT = 3  # tokens that a continuation is known by, at most
_KEPT = 4  # continuations of a context
_LOGGED = 2048
_ROWS = 8  # of a step that are read: each is a pass over the vocabulary

Context = tuple[int, ...]


@dataclass(slots=True)
class Pool:
    """What one conversation knows: continuations by the last tokens, the newest first. ``log`` are the last that were
    learnt from rejected guesses: (tokens of the text that must stand for it, context, token)."""

    read: int = 0  # tokens of the text
    said: dict[Context, tuple[int, ...]] = field(default_factory=dict)
    log: deque[tuple[int, Context, int]] = field(default_factory=lambda: deque(maxlen=_LOGGED))

    def read_on(self, tokens: Sequence[int]) -> None:
        for i in range(max(self.read, 1), len(tokens)):
            self._note(tuple(tokens[max(i - _CONTEXT, 0) : i]), tokens[i])
        self.read = len(tokens)

    def reject(self, stands: int, context: Context, token: int) -> None:
        """A guess did not hold; after it, with ``context`` its last tokens, the target would have said ``token``."""
        self.log.append((stands, context, token))
        self._note(context, token)

    def _note(self, context: Context, token: int) -> None:
        for start in range(len(context)):
            key = context[start:]
            known = self.said.get(key, ())
            if known[:1] != (token,):
                self.said[key] = (token, *(one for one in known if one != token))[:_KEPT]

    def truncate(self, n: int) -> None:
        """Forgets what was learnt behind the first ``n`` tokens: the text is read again, rejected guesses go first."""
        if n >= self.read and (not self.log or self.log[-1][0] <= n):
            return
        standing = [entry for entry in self.log if entry[0] <= n]
        self.read, self.said = 0, {}
        self.log.clear()
        for entry in standing:
            self.reject(*entry)

    def continuations(self, context: Context) -> Iterator[tuple[int, float, Context]]:
        """What may follow, by the longest context that is known: one of length L is believed to L / (L + 1), an older
        one to half, a third … of that."""
        for start in range(len(context)):
            if known := self.said.get(context[start:]):
                length = len(context) - start
                for age, token in enumerate(known, 1):
                    yield token, length / (length + 1) / age, (*context, token)[-_CONTEXT:]
                return


class Lookahead(TextDrafter):
    """State is one pool a conversation."""

    name = NAME

    def __init__(self) -> None:
        self._pools: dict[int, Pool] = {}

    def open(self, seq: int) -> None:
        self._pools[seq] = Pool()

    def close(self, seq: int) -> None:
        del self._pools[seq]

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return [self._propose(ask) for ask in asks]

    def _propose(self, ask: Ask) -> Draft:
        pool, price, pending = self._pools[ask.seq], ask.price, ask.tokens[-1]
        pool.read_on(ask.tokens)
        if (pending,) not in pool.said:
            return Draft.nothing(ask)
        context = tuple(ask.tokens[-_CONTEXT:])
        return Draft(grow(pending, price.limits.depth, price, NAME, context, pool.continuations))

    def observe(self, seq: int, start: int, tree: TokenTree, path: Sequence[int], rows: Rows) -> None:
        if len(path) == tree.draft_n:
            return
        pool, kept = self._pools[seq], {0, *path}
        for node in [node for node in range(1, len(tree)) if node not in kept][:_ROWS]:
            context = tuple(tree.tokens[one] for one in tree.path(node)[-_CONTEXT:])
            pool.reject(start + 1, context, int(np.argmax(rows.logits(node))))

    def truncate(self, seq: int, n: int) -> None:
        self._pools[seq].truncate(n)

    def close_all(self) -> None:
        self._pools.clear()
