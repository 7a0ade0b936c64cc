"""A model that says one text. Apart, since an engine's process imports it, and should import little else."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from localspec.backends.base import Row
from localspec.backends.fake import FakeTarget, FakeVocab

TEMPLATE = "{% for message in messages %}{{ message.content }}\n{% endfor %}"


class Scripted(FakeTarget):
    """Says after each token the one that ``follows``; a text of single tokens comes out as it is written."""

    def __init__(self, pieces: Sequence[str], *, n_ctx: int = 512) -> None:
        first = 40
        renamed = {first + i: piece for i, piece in enumerate(pieces)}
        super().__init__(FakeVocab(first + len(pieces), renamed=renamed), n_ctx=n_ctx)
        script = [*renamed, 0]
        self._after = dict(pairwise(script))
        self._first = script[0]

    def scores(self, text: Sequence[int]) -> Row:
        row = np.zeros(self.vocab.n_tokens, np.float32)
        row[self._after.get(text[-1], self._first)] = 50.0
        return row
