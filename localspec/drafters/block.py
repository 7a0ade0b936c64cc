"""``draft-dflash``, ``draft-dspark``: a block drafter guesses a chain of tokens in one pass, from the target's hidden
states.

It takes these states in as they come, some at a time. A block is never committed: when a chain has been read from its
rows the cells are dropped, so its cache holds the text and nothing else between passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from localspec.backends.base import CARRIED, BlockDrafter, Row, Rows, Work
from localspec.drafters.base import Ask, Features
from localspec.drafters.draft_model import DraftModel
from localspec.drafters.growth import Growth, worth_a_pass
from localspec.drafters.translation import Translation
from localspec.drafters.waiting import Waiting
from localspec.spec.tree import TokenTree
from localspec.vocab import Pairing


class BlockModel(DraftModel):
    """A `BlockDrafter` that guesses for its target; ``name`` is its ``--spec-type``."""

    _lends = False

    def __init__(self, block: BlockDrafter, pairing: Pairing, name: str) -> None:
        super().__init__(block, pairing)
        self._block = block
        self.name = name
        self.needs = block.layers
        self._waiting: dict[int, Waiting] = {}  # states of the text from the end of the cache on

    def open(self, seq: int) -> None:
        super().open(seq)
        self._waiting[seq] = Waiting(self.needs)

    def fork(self, seq: int, new: int, n: int) -> None:
        self._read_waiting(seq)
        super().fork(seq, new, n)
        self._waiting[new] = Waiting(self.needs)

    def close(self, seq: int) -> None:
        super().close(seq)
        del self._waiting[seq]

    def truncate(self, seq: int, n: int) -> None:
        self._read_waiting(seq)
        super().truncate(seq, n)

    def gap(self, seq: int, n_past: int) -> int:
        return max(n_past - self._known(seq), 0)

    def prefill(self, seq: int, start: int, tokens: Sequence[int], features: Features) -> None:
        self._take_in(seq, start, features, range(len(tokens)))

    def observe(self, seq: int, start: int, tree: TokenTree, path: Sequence[int], rows: Rows) -> None:
        self._take_in(seq, start, rows.features, (0, *path))

    def _take_in(self, seq: int, start: int, features: Features, rows: Sequence[int]) -> None:
        """In ``rows`` the target has given its hidden states of the text from position ``start`` on."""
        fits = start + len(rows) <= self._block.caps.n_ctx
        if fits and self._waiting[seq].take(features, rows, self._known(seq) - start):
            self._read_waiting(seq)

    def _known(self, seq: int) -> int:
        """Tokens of the text whose states are here."""
        return self._block.n_past(self._lanes[seq]) + len(self._waiting[seq])

    def _read_waiting(self, seq: int) -> None:
        if waiting := self._waiting[seq]:
            self._block.take_in(self._lanes[seq], waiting.whole)
            waiting.cut(0)

    def _text(self, ask: Ask) -> Sequence[int]:
        self._read_waiting(ask.seq)
        known = self._known(ask.seq)
        full = len(ask.tokens) > self._block.caps.n_ctx  # which `_depth` tells
        return ask.tokens if full or known == len(ask.tokens) - 1 else ()

    def _depth(self, ask: Ask, length: int) -> int:
        return min(ask.price.limits.depth, self._block.guesses, self._block.caps.n_ctx - length)

    def _growth(self, ask: Ask, unread: Sequence[int], depth: int, branches: int) -> Growth:
        kind = SelectedGrowth if self._block.candidates else BlockGrowth
        return kind(ask, unread, depth, self._pairing, self.name, self._block)

    def _grow(self, growths: Sequence[Growth]) -> None:
        blocks = [growth for growth in growths if isinstance(growth, BlockGrowth)]
        if not blocks:
            return
        masks = [self._block.mask] * (max(block.rows for block in blocks) - 1)
        features = (CARRIED,) if self._block.has_confidence or self._block.candidates else ()
        lanes = [self._lanes[block.ask.seq] for block in blocks]
        work = [
            Work(lane, TokenTree.chain((block.ask.tokens[-1], *masks)), features=features)
            for lane, block in zip(lanes, blocks, strict=True)
        ]
        try:
            for block, rows in zip(blocks, self._block.forward(work), strict=True):
                block.read(rows)
        finally:
            for lane in lanes:
                self._block.commit(lane, ())


class BlockGrowth(Growth):
    """A chain of guesses that a block's rows hold; where siblings pay they stand beside it, and nothing behind them."""

    def __init__(
        self,
        ask: Ask,
        unread: Sequence[int],
        depth: int,
        pairing: Pairing | Translation,
        source: str,
        block: BlockDrafter,
    ) -> None:
        # A guess more costs no pass more.
        super().__init__(replace(ask, price=replace(ask.price, pass_s=0.0)), unread, depth, pairing, source, branches=1)
        self._block = block
        self._beside = np.empty((0, 0), np.float32)  # what stands beside each guess of the block

    @property
    def rows(self) -> int:
        """Rows of a block that hold as many guesses as are wanted."""
        return self._depth + self._block.first_row

    def read(self, rows: Rows) -> None:
        if CARRIED in rows.features:
            self._beside = rows.features[CARRIED][self._block.first_row :]
        growing: Sequence[Growth] = [self]
        while growing:
            self.take(rows)
            growing = worth_a_pass(growing)

    def _row(self, rows: Rows, node: int) -> Row:
        return rows.logits(self._home[node] + self._block.first_row)

    def _scored(self, node: int, guesses: Sequence[tuple[int, float]]) -> Sequence[tuple[int, float]]:
        """The drafter's own confidence is about its first choice, behind which the chain goes on; the others share what
        that leaves."""
        if not self._block.has_confidence or not guesses:
            return guesses
        (token, score), *others = guesses
        sure = float(self._beside[self._home[node], 0])
        rest = (1 - sure) / max(1 - score, 1e-9)
        return [(token, sure), *((other, min(rest * weight, sure)) for other, weight in others)]


class SelectedGrowth(BlockGrowth):
    """The same where each guess is picked among a few candidates, by the one before it."""

    def _row(self, rows: Rows, node: int) -> Row:
        place = self._home[node]
        # Behind the pending token all columns are alike.
        before = int((self._ids(place - 1) == self._tokens[node]).argmax()) if place else 0
        count = self._block.candidates
        row = np.full(self._block.caps.n_vocab, -np.inf, np.float32)
        row[self._ids(place)] = self._beside[place, count * (before + 1) : count * (before + 2)]
        return row

    def _ids(self, place: int) -> NDArray[np.intp]:
        return self._beside[place, : self._block.candidates].astype(np.intp)
