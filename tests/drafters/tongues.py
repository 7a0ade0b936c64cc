"""Fake models of vocabularies that split the same bytes differently."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from localspec.backends.base import Row
from localspec.backends.fake import FakeTarget, FakeVocab
from localspec.drafters.translated import TranslatedModel
from localspec.drafters.translation import Translation

#: What spells every text of the tests: letters, borders, and the bytes of é, € and U+FFFD.
ALPHABET = [*(bytes([byte]) for byte in b"abc \n\xc3\xa9\xe2\x82\xac\xef\xbf\xbd")]
OURS = ["ab", " a", "é", "abc", "\n\n", "€", "ca"]
THEIRS = ["bc", " a", "\n ", "cab", "é", " b", "\ufffd"]


class Pieces(FakeVocab):
    """0 ends a text, 1 is a control token ``name``, the others are ``pieces``; texts are cut at the longest of them."""

    def __init__(self, pieces: Sequence[bytes], *, name: str = "<ctl>", bos: int | None = None) -> None:
        super().__init__(len(pieces) + 2, renamed={1: name})
        self.bos = bos  # type: ignore[assignment]
        self._pieces = [b"", b"", *pieces]

    def text(self, token: int) -> str:
        return self._pieces[token].decode("latin-1") or super().text(token)

    def piece(self, token: int, *, special: bool = False) -> bytes:
        return self._pieces[token] or super().piece(token, special=special)

    def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        raw, ids = text.encode(), []
        while raw:
            token = max(range(2, self.n_tokens), key=lambda i: len(self._pieces[i]) * raw.startswith(self._pieces[i]))
            ids.append(token)
            raw = raw[len(self._pieces[token]) :]
        return ids


def ours() -> Pieces:
    return Pieces([*ALPHABET, *(piece.encode() for piece in OURS)])


def theirs(**changes: Any) -> Pieces:
    return Pieces([*reversed(ALPHABET), *(piece.encode() for piece in THEIRS)], **changes)


class ByBytes(FakeTarget):
    """Scores by the last byte of the text and the first of what follows: models of all vocabularies agree, roughly."""

    def __init__(self, vocab: Pieces, *, seed: int = 0, **limits: Any) -> None:
        super().__init__(vocab, seed=seed, **limits)
        table = np.random.default_rng([seed, 9]).normal(0, 3, (256, 256))
        firsts = [(vocab.piece(token) or b"\x00")[0] for token in range(vocab.n_tokens)]
        self._table = (table[:, firsts] + 0.2 * np.random.default_rng(seed).normal(size=len(firsts))).astype(np.float32)

    def scores(self, text: Sequence[int]) -> Row:
        last = next((piece[-1] for token in reversed(text) if (piece := self.vocab.piece(token))), 0)
        row: Row = self._table[last].copy()
        return row


def target(seed: int = 0, **limits: Any) -> ByBytes:
    return ByBytes(ours(), seed=seed, **limits)


def translated(seed: int = 0, *, vocab: Pieces | None = None, **limits: Any) -> TranslatedModel:
    """A draft model of another vocabulary for `target`."""
    model = ByBytes(vocab or theirs(), seed=seed, **limits)
    return TranslatedModel(model, Translation(ours(), model.vocab))
