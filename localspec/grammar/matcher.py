"""What a grammar allows next, in tokens of a vocabulary."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localspec.grammar.automaton import DEAD, Automaton
from localspec.grammar.gbnf import parse
from localspec.grammar.trie import TokenTrie

Row = NDArray[np.float32]
Mask = NDArray[np.bool_]

_MASKS = 32  # kept, one byte a token of the vocabulary each
_GRAMMARS = 4


class _Language:
    """One grammar over one vocabulary. The masks of the states that were lately asked for are kept: a text comes back
    to few of them."""

    def __init__(self, text: str, trie: TokenTrie, end_tokens: Collection[int]) -> None:
        self.automaton = Automaton(parse(text))
        self.trie = trie
        self.ends = frozenset(end_tokens)
        self._end_ids = np.array(sorted(self.ends), np.int32)
        self._masks: OrderedDict[int, Mask] = OrderedDict()

    def known_mask(self, state: int) -> Mask | None:
        return self._masks.get(state)

    def mask(self, state: int) -> Mask:
        mask = self._masks.get(state)
        if mask is None:
            mask = self.trie.allowed(self.automaton, state)
            mask[self._end_ids] = self.automaton.accepts(state)
            self._masks[state] = mask
            if len(self._masks) > _MASKS:
                self._masks.popitem(last=False)
        else:
            self._masks.move_to_end(state)
        return mask


@dataclass(frozen=True, slots=True, eq=False)
class Matcher:
    """A place in a text of the grammar, from `Grammars.start` on. Immutable: guesses that do not stand leave nothing
    behind. A token is allowed if some text of the grammar goes on with its bytes; tokens without bytes are not, end
    tokens are where the text may end. After an end token anything goes: the answer is over.

    What asks for states raises `UsageError` where the grammar is too ambiguous or takes too much memory.
    """

    _language: _Language
    _state: int
    ended: bool = False

    def follow(self, token: int) -> Matcher | None:
        """The place after ``token``; ``None`` if it is not allowed."""
        if self.ended:
            return self
        language = self._language
        if token in language.ends:
            return Matcher(language, self._state, ended=True) if language.automaton.accepts(self._state) else None
        piece = language.trie.pieces[token] if token < len(language.trie.pieces) else b""
        state = language.automaton.read(self._state, piece) if piece else DEAD
        return None if state == DEAD else Matcher(language, state)

    def allows(self, token: int) -> bool:
        return self.follow(token) is not None

    def advance(self, token: int) -> Matcher:
        """The place after ``token``.

        Raises:
            ValueError: it is not allowed.
        """
        place = self.follow(token)
        if place is None:
            raise ValueError(f"the grammar does not allow token {token} here")
        return place

    def allowed(self, tokens: NDArray[np.int32]) -> NDArray[np.intp]:
        """The places in ``tokens`` of those that are allowed: for a few tokens of a place whose mask nobody has asked
        for, far cheaper than the mask."""
        mask = None if self.ended else self._language.known_mask(self._state)
        if mask is not None and tokens.max(initial=0) < len(mask):
            return np.flatnonzero(mask[tokens])
        return np.array([at for at, token in enumerate(tokens.tolist()) if self.allows(token)], np.intp)

    def ban(self, row: Row) -> Row:
        """A copy of ``row`` (``[n]``, as many tokens as the vocabulary has, or not) with -inf for what is not
        allowed."""
        if self.ended:
            return row.copy()
        mask = self._language.mask(self._state)
        n = min(len(row), len(mask))
        banned = np.full_like(row, -np.inf)
        np.copyto(banned[:n], row[:n], where=mask[:n])
        return banned

    @property
    def must_end(self) -> bool:
        """Whether the text is complete and cannot go on."""
        return not self.ended and self._language.automaton.must_end(self._state)

    @property
    def only(self) -> int | None:
        """The token that must come, if there is but one."""
        if self.ended:
            return None
        allowed = self._language.mask(self._state).nonzero()[0]
        return int(allowed[0]) if len(allowed) == 1 else None

    def forced(self, most: int) -> bytes:
        """The bytes that must come, ``most`` at most."""
        return b"" if self.ended else self._language.automaton.forced(self._state, most)


class Grammars:
    """The grammars of one vocabulary. ``pieces`` are the bytes that each token adds to a text; the last few grammars
    are kept, with what was worked out of them."""

    def __init__(self, pieces: Sequence[bytes], end_tokens: Collection[int]) -> None:
        # llama.cpp never allows a piece that begins with a zero byte either.
        self._trie = TokenTrie([b"" if piece.startswith(b"\0") else piece for piece in pieces])
        self._ends = end_tokens
        self._languages: OrderedDict[str, _Language] = OrderedDict()

    def start(self, text: str) -> Matcher:
        """The beginning of a text of the grammar ``text``, which is GBNF.

        Raises:
            UsageError: as `localspec.grammar.parse`.
        """
        language = self._languages.get(text)
        if language is None:
            language = self._languages[text] = _Language(text, self._trie, self._ends)
            if len(self._languages) > _GRAMMARS:
                self._languages.popitem(last=False)
        else:
            self._languages.move_to_end(text)
        return Matcher(language, language.automaton.start)
