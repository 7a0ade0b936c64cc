"""``draft-eagle``, ``draft-eagle3``, ``draft-mtp``: a head reads the target's hidden states and guesses from them. It
lies in a file of its own (EAGLE-1 and -2, arXiv 2401.15077, 2406.16858; EAGLE-3, arXiv 2503.01840) or comes with the
target (layers for multi-token prediction, arXiv 2412.19437).

The tree grows as a draft model's does (`draft_model`: EAGLE-2's dynamic tree), with one thing more: beside each token
the head reads the state behind the token before it. In the text these come from the target's passes, for guesses from
the head's own. When guesses have stood, their cells are dropped and read again with the target's states: a head that
goes on from its own guesses drifts.

So position i of the head's cache holds token i + 1 of the text with the state of token i, and the pending token is read
first in each tree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from localspec.backends.base import CARRIED, Extent, Head, Rows, Work
from localspec.drafters.base import Ask, Features
from localspec.drafters.draft_model import DraftModel
from localspec.drafters.growth import Growth
from localspec.drafters.translation import Translation
from localspec.drafters.waiting import Waiting
from localspec.spec.tree import TokenTree
from localspec.vocab import Pairing

States = NDArray[np.float32]


class HeadModel(DraftModel):
    """A `Head` that guesses for its target. It takes the target's states in as they come, encodes them some at a time,
    and reads them at the first guess."""

    _lends = False

    def __init__(self, head: Head, pairing: Pairing, name: str) -> None:
        super().__init__(head, pairing)
        self.name = name
        self._head = head
        self._guesses_all = not pairing.barred and pairing.common == head.vocab.n_tokens
        self.needs = head.layers
        self._unread: dict[int, list[States]] = {}  # states of the text from the end of the cache on
        self._waiting: dict[int, Waiting] = {}  # to be encoded: what comes behind them

    def open(self, seq: int) -> None:
        super().open(seq)
        self._unread[seq], self._waiting[seq] = [], Waiting(self.needs)

    def fork(self, seq: int, new: int, n: int) -> None:
        read = self._model.n_past(self._lanes[seq])
        super().fork(seq, new, max(n - 1, 0))
        self._waiting[new] = Waiting(self.needs)
        self._leave(new, self._states(seq)[: max(n - read, 0)])

    def close(self, seq: int) -> None:
        super().close(seq)
        del self._unread[seq], self._waiting[seq]

    def prefill(self, seq: int, start: int, tokens: Sequence[int], features: Features) -> None:
        self._settle(seq)
        self._take_in(seq, start, features, range(len(tokens)))

    def observe(self, seq: int, start: int, tree: TokenTree, path: Sequence[int], rows: Rows) -> None:
        growth = self._growing.pop(seq, None)
        if growth is not None:
            self._keep(seq, growth.decoded_path(()))
        self._take_in(seq, start, rows.features, (0, *path))

    def _take_in(self, seq: int, start: int, features: Features, rows: Sequence[int]) -> None:
        """In ``rows`` the target has given its hidden states of the text from position ``start`` on."""
        if self._waiting[seq].take(features, rows, self._known(seq) - start):
            self._encode(seq)

    def _encode(self, seq: int) -> None:
        """What was taken in so far."""
        if waiting := self._waiting[seq]:
            self._unread[seq].append(self._head.encode(self._lanes[seq], waiting.whole))
            waiting.cut(0)

    def _known(self, seq: int) -> int:
        """Tokens of the text whose states are here, or were read."""
        encoded = sum(len(states) for states in self._unread[seq])
        return self._model.n_past(self._lanes[seq]) + encoded + len(self._waiting[seq])

    def _states(self, seq: int) -> States:
        """States that were not read yet, ``[n, width]``, in one piece."""
        self._encode(seq)
        unread = self._unread[seq]
        if len(unread) > 1:
            unread[:] = [np.concatenate(unread)]
        return unread[0] if unread else np.empty((0, 0), np.float32)

    def _leave(self, seq: int, states: States) -> None:
        """Only these were not read yet."""
        self._unread[seq] = [states] if len(states) else []

    def _is_raw(self, seq: int) -> bool:
        """Whether what was not read yet can stay as the target gave it: a head that grows trees by itself encodes what
        it reads."""
        return self._head.grow is not None and not self._unread[seq]

    def _keep(self, seq: int, path: Sequence[int]) -> None:
        """Of the uncommitted tree, ``path`` stays: as many unread states were read."""
        self._model.commit(self._lanes[seq], path)
        if self._unread[seq]:
            self._leave(seq, self._states(seq)[len(path) :])
        else:
            self._waiting[seq].drop(len(path))

    def _text(self, ask: Ask) -> Sequence[int]:
        return ask.tokens[1:] if self._known(ask.seq) == len(ask.tokens) - 1 else ()

    def _depth(self, ask: Ask, length: int) -> int:
        depth = super()._depth(ask, length)
        return depth if self._head.deepest is None else min(depth, self._head.deepest)

    def _read_text(self, ask: Ask, chunk: Sequence[int]) -> None:
        lane, states = self._lanes[ask.seq], self._states(ask.seq)[: len(chunk)]
        self._model.forward([Work.prompt(lane, chunk, states=states)])
        self._keep(ask.seq, range(len(chunk)))

    def _growth(self, ask: Ask, unread: Sequence[int], depth: int, branches: int) -> Growth:
        seq = ask.seq
        states = self._waiting[seq].whole if self._is_raw(seq) else self._states(seq)
        return Carrying(ask, unread, depth, self._pairing, self.name, branches, states)

    def _grow(self, growths: Sequence[Growth]) -> None:
        extents = {growth: extent for growth in growths if (extent := growth.extent) is not None}
        by_itself = extents if self._grown_by_itself(extents) else {}
        super()._grow([growth for growth in growths if growth not in by_itself])

    def _grown_by_itself(self, extents: Mapping[Growth, Extent]) -> bool:
        """Whether the head has grown these trees in one go. It goes as deep as limits allow: whether another pass pays
        shows in the guesses of the one before, which nobody looks at meanwhile."""
        if self._head.grow is None or not self._guesses_all or not extents:
            return False
        work = [growth.work(self._lanes[growth.ask.seq]) for growth in extents]
        found = self._head.grow(work, [*extents.values()])
        if found is None:
            return False
        self._growing.update((growth.ask.seq, growth) for growth in extents)
        for growth, levels in zip(extents, found, strict=True):
            growth.follow(levels)
        return True

    def truncate(self, seq: int, n: int) -> None:
        self._settle(seq)
        lane, waiting = self._lanes[seq], self._waiting[seq]
        read, known = self._model.n_past(lane), self._known(seq)
        waiting.cut(max(len(waiting) - max(known - n, 0), 0))
        if n <= read:  # the state of the last token that stands was read with one that does not: it is gone
            self._model.truncate(lane, max(n - 1, 0))
            self._unread[seq] = []
        elif not waiting:
            self._leave(seq, self._states(seq)[: n - read])

    def gap(self, seq: int, n_past: int) -> int:
        return max(n_past - self._known(seq), 0)


class Carrying(Growth):
    """A tree whose nodes are read with the states behind their parents; ``states`` are those of the unread text, or the
    features that they are made of."""

    def __init__(
        self,
        ask: Ask,
        unread: Sequence[int],
        depth: int,
        pairing: Pairing | Translation,
        source: str,
        branches: int,
        states: States | Features,
    ) -> None:
        super().__init__(ask, unread, depth, pairing, source, branches)
        self._text_states = states
        self._carried: list[States] = []  # behind each decoded node

    def work(self, lane: int) -> Work:
        work = super().work(lane)
        if work.done:
            return replace(work, states=np.concatenate(self._carried)[self._cache_parents[work.done :]])
        states = self._text_states
        return replace(work, raw=states) if isinstance(states, Mapping) else replace(work, states=states)

    def take(self, rows: Rows) -> None:
        self._carried.append(rows.features[CARRIED].copy())
        super().take(rows)
