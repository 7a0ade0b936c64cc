"""Whether two models read text alike, as far as their headers tell."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from localspec.errors import ModelLoadError
from localspec.hub.header import Array, Header

#: Counts of tokens may differ by so many rows of padding in one vocabulary.
_PADDING = 128
#: Tokens that are not compared: names of control tokens come first in many models, and may differ.
_SKIPPED = 512
#: Bytes of the tokens after them that are: some thousand tokens. Shorter lists are not compared: padding, which may
#: differ, would be a part of them.
_SAMPLE = 1 << 16


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """``kind``: of the tokenizer, ``splits``: how it takes text apart, ``count`` tokens, ``digest``: of some of
    them, where there are enough."""

    kind: str | None
    splits: str | None
    count: int
    digest: str

    @classmethod
    def of(cls, header: Header) -> Vocabulary:
        """What a header says.

        Raises:
            ModelLoadError: the file cannot be read any more.
        """
        tokens = header.metadata.get("tokenizer.ggml.tokens")
        if not isinstance(tokens, Array):
            tokens = Array(0)
        try:
            with header.path.open("rb") as file:
                file.seek(tokens.start)
                listed = file.read(min(tokens.end - tokens.start, 4 * _SAMPLE))
        except OSError as error:
            raise ModelLoadError(f"{header.path} cannot be read: {error.strerror}", hint="Check the path.") from None
        kind, splits = header.text("tokenizer.ggml.model"), header.text("tokenizer.ggml.pre")
        start = _after(listed, _SKIPPED)
        sample = listed[start : start + _SAMPLE]
        digest = hashlib.sha256(sample).hexdigest() if len(sample) == _SAMPLE else ""
        return cls(kind, splits, tokens.count, digest)

    def same_as(self, other: Vocabulary) -> bool:
        """Whether ids mean the same in both; what only loading finds out (a renamed control token) goes unnoticed."""
        mine, theirs = ((one.kind, one.splits, one.digest) for one in (self, other))
        return mine == theirs and self.counts_as(other.count)

    def counts_as(self, tokens: int) -> bool:
        """Whether it may be one of so many tokens."""
        return abs(self.count - tokens) <= _PADDING


def _after(listed: bytes, count: int) -> int:
    """Where so many texts of an array are over."""
    at = 0
    for _ in range(count):
        if at + 8 > len(listed):
            break
        at += 8 + int.from_bytes(listed[at : at + 8], "little")
    return at
