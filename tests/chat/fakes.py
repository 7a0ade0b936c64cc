"""A vocabulary small enough to read: one token a byte, and a few control tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

FIRST = 256


@dataclass(frozen=True)
class ByteVocab:
    """Ids below 256 are bytes, the others the names in ``controls``."""

    controls: Sequence[str] = ("<|im_start|>", "<|im_end|>", "<s>", "</s>")
    bos: int | None = None
    end_tokens: frozenset[int] = frozenset({FIRST + 1})
    kind: str = "bytes"
    opening: str = ""  # how templates spell BOS where the model does not want one
    closing: str = ""  # how they spell the end, if not as the lowest end token

    @property
    def bos_text(self) -> str:
        return self.opening if self.bos is None else self.text(self.bos)

    @property
    def eos_text(self) -> str:
        return self.closing or (self.text(min(self.end_tokens)) if self.end_tokens else "")

    @property
    def n_tokens(self) -> int:
        return FIRST + len(self.controls)

    @property
    def control_tokens(self) -> frozenset[int]:
        return frozenset(range(FIRST, self.n_tokens))

    def id(self, name: str) -> int:
        return FIRST + list(self.controls).index(name)

    def text(self, token: int) -> str:
        return self.controls[token - FIRST] if token >= FIRST else chr(token)

    def piece(self, token: int, *, special: bool = False) -> bytes:
        if token < FIRST:
            return bytes([token])
        return self.text(token).encode() if special else b""

    def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        if not special:
            return list(text.encode())
        ids: list[int] = []
        names = sorted(self.controls, key=len, reverse=True)
        for part in re.split("(" + "|".join(map(re.escape, names)) + ")", text):
            ids += [self.id(part)] if part in self.controls else part.encode()
        return ids

    def written(self, ids: Sequence[int]) -> str:
        """Everything spelt out, control tokens too."""
        return b"".join(self.piece(token, special=True) for token in ids).decode()
