"""``draft-pard``: a small model that guesses several positions in one pass (PARD, arXiv 2504.18583).

It was trained to read, behind the text, tokens that stand for what is not known yet, and to guess at each of them.
What it makes of them is dropped when the pass is done: text is all that stays in its cache.
"""

from __future__ import annotations

from collections.abc import Sequence

from localspec.backends.base import Row, Rows, Target, Work
from localspec.drafters.base import Ask, Draft
from localspec.drafters.draft_model import DraftModel
from localspec.drafters.files import PARD
from localspec.drafters.growth import Growth
from localspec.drafters.positions import Positions, grow
from localspec.spec.tree import TokenTree
from localspec.vocab import Pairing


class ParallelModel(DraftModel):
    """``mask`` is the token that stands for one that is not known."""

    name = PARD
    _lends = False

    def __init__(self, model: Target, pairing: Pairing, mask: int) -> None:
        super().__init__(model, pairing)
        self._same = pairing
        self._mask = mask

    def _depth(self, ask: Ask, length: int) -> int:
        # Guesses of n positions take n - 1 masks behind the text: cells, and rows of the pass that ends the text.
        caps, lanes = self._model.caps, max(len(self._lanes), 1)
        rows = min(caps.max_rows, caps.max_outputs) // lanes
        return min(ask.price.limits.depth, ask.price.limits.nodes, 1 + caps.n_ctx - length, (rows + 1) // 2)

    def _share(self) -> int:
        return max(super()._share() // 2, 1)

    def _growth(self, ask: Ask, unread: Sequence[int], depth: int, branches: int) -> Growth:
        return Masked(ask, unread, depth, self._same, self.name, self._mask)


class Masked(Growth):
    """A tree that is grown from the rows of one pass, over the text and behind it ``depth - 1`` masks."""

    def __init__(self, ask: Ask, unread: Sequence[int], depth: int, pairing: Pairing, source: str, mask: int) -> None:
        super().__init__(ask, unread, depth, pairing, source, branches=1)
        self._same = pairing
        self._masks = [mask] * (depth - 1)
        self._draft = Draft.nothing(ask)

    def work(self, lane: int) -> Work:
        return Work(lane, TokenTree.chain([*self._in_cache, *self._masks]), rows_from=self._n_unread - 1)

    def take(self, rows: Rows) -> None:
        self._done = self._n_unread
        first = self._n_unread - 1

        def row(position: int) -> Row:
            return rows.logits(first + position)

        self._draft = grow(self.ask, Positions(self.ask, row, self._same), self._depth, self._source, ready=self._depth)

    def draft(self) -> Draft:
        return self._draft

    def decoded_path(self, tokens: Sequence[int]) -> list[int]:
        """The text alone: guesses were not read, and masks do not stay."""
        return super().decoded_path(())
