"""Sequence breakers of DRY, from text to tokens."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from localspec.sampling import Breakers
from localspec.vocab import Vocab

# As llama.cpp: what follows the first token of a breaker is compared so far.
_LONGEST_TAIL = 20


@lru_cache(maxsize=2)
def breakers(vocab: Vocab, texts: tuple[str, ...]) -> Breakers:
    """Every way in which ``texts`` may stand in tokens: within one, or begun at the end of one and gone on with in the
    next. Looks at the whole vocabulary once."""
    wanted = [(text.encode("utf-8", "surrogatepass"), _Tails(vocab)) for text in texts]
    sequences: list[tuple[int, ...]] = []
    for token in range(vocab.n_tokens):
        piece = vocab.piece(token, special=True)
        for text, tails in wanted:
            if text[:1] in piece:  # few have it, and a vocabulary is long
                sequences += ((token, *tail) for tail in tails.after(piece, text))
    return Breakers.of(sequences)


class _Tails:
    """Rests of one breaker as tokens, each worked out once."""

    def __init__(self, vocab: Vocab) -> None:
        self._vocab = vocab
        self._known: dict[bytes, tuple[int, ...] | None] = {}

    def after(self, piece: bytes, text: bytes) -> Iterator[tuple[int, ...]]:
        """What has to follow a token so that ``text`` is there."""
        if text in piece:
            yield ()
            return
        for begun in range(1, min(len(text), len(piece) + 1)):
            if piece.endswith(text[:begun]) and (tail := self._tail(text[begun:])):
                yield tail

    def _tail(self, rest: bytes) -> tuple[int, ...] | None:
        """``None``: it begins within a character, which no tokenizer takes."""
        if rest not in self._known:
            try:
                tokens = self._vocab.tokenize(rest.decode())
            except UnicodeDecodeError:
                tokens = []
            self._known[rest] = tuple(tokens[:_LONGEST_TAIL]) or None
        return self._known[rest]
