"""``ngram-cache``: what came after the last one to four tokens, by how often.

Lookup decoding as in llama.cpp (``common/ngram-cache``): counts of this conversation first, then those of a *dynamic*
file, which must be clearer, then those of a *static* one, by two tokens. The longest n-gram that is seen often and
clearly enough decides. Adapted: nothing is written to the dynamic file, since that would carry a conversation into the
next; and a tree has the rivals of a token beside it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from localspec.drafters.base import Ask, Draft, TextDrafter
from localspec.drafters.best_first import grow
from localspec.errors import UsageError

NAME = "ngram-cache"
_LONGEST, _STATIC = 4, 2  # tokens of an n-gram
_NONE = -1  # in files: no token
_MOST_BYTES = 2**25
#: By length of the n-gram less one: how often it must have come, and the share that the best must have of that.
_LAX = ((2, 0.66), (2, 0.5), (1, 0.5), (1, 0.5))
_STRICT = ((4, 0.75), (3, 0.66), (2, 0.66), (2, 0.66))

Run = tuple[int, ...]
Counts = Mapping[Run, Mapping[int, int]]


def read_lookup(path: Path, n_vocab: int) -> Counts:
    """The counts of a lookup cache file of llama.cpp: records of four tokens (-1: none), how many tokens came next, and
    for each of those the token and how often; all of them 32-bit integers.

    Raises:
        UsageError: it cannot be read, is too large, is no such file, or is of another vocabulary.
    """
    data = lookup_integers(path)
    counts: dict[Run, dict[int, int]] = {}
    at, largest = 0, 0
    while at < len(data):
        head, width = data[at : at + _LONGEST], 2 * sum(data[at + _LONGEST : at + _LONGEST + 1])
        at += _LONGEST + 1
        pairs = data[at : at + width] if width > 0 else []
        run, tokens, times = tuple(token for token in head if token != _NONE), pairs[::2], pairs[1::2]
        if not run or not pairs or len(pairs) < width or min(*run, *tokens) < 0 or min(times) < 1:
            raise _no_lookup(path)
        largest = max(largest, *run, *tokens)
        counts[run] = dict(zip(tokens, times, strict=True))
        at += width
    if largest >= n_vocab:
        raise UsageError(f"{path} is of another vocabulary", hint="Make one with this model.")
    return counts


def lookup_integers(path: Path) -> list[int]:
    """What a lookup cache file holds, not yet understood.

    Raises:
        UsageError: it cannot be read, is too large, or holds no whole integers.
    """
    try:
        size = path.stat().st_size
        if size > _MOST_BYTES:
            raise UsageError(f"{path} has {size} bytes, more than {_MOST_BYTES}", hint="Use a smaller lookup cache.")
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint="Check -lcs and -lcd.") from None
    if len(data) % 4:
        raise _no_lookup(path)
    return list(struct.unpack(f"<{len(data) // 4}i", data))


def _no_lookup(path: Path) -> UsageError:
    return UsageError(f"{path} is no lookup cache of llama.cpp", hint="Make one with llama-lookup-create.")


class TextCounts:
    """What came after every run of one to four tokens of one text."""

    def __init__(self) -> None:
        self.counts: dict[Run, dict[int, int]] = {}
        self._text: list[int] = []

    def read_on(self, tokens: Sequence[int]) -> None:
        text = self._text
        for token in tokens[len(text) :]:
            for run in _runs(text):
                after = self.counts.setdefault(run, {})
                after[token] = after.get(token, 0) + 1
            text.append(token)

    def truncate(self, n: int) -> None:
        """Goes back to the first ``n`` tokens."""
        text = self._text
        while len(text) > n:
            token = text.pop()
            for run in _runs(text):
                after = self.counts[run]
                after[token] -= 1
                if not after[token]:
                    del after[token]
                if not after:
                    del self.counts[run]


def _runs(text: Sequence[int]) -> Iterator[Run]:
    """The last one to four tokens."""
    tail = tuple(text[-_LONGEST:])
    return (tail[start:] for start in range(len(tail)))


class NgramCache(TextDrafter):
    """State is the counts of one conversation.

    Args:
        dynamic, static: counts that all conversations may draw on, as of `read_lookup`.
    """

    name = NAME

    def __init__(self, dynamic: Counts | None = None, static: Counts | None = None) -> None:
        self._dynamic, self._static = dynamic or {}, static or {}
        self._texts: dict[int, TextCounts] = {}

    def open(self, seq: int) -> None:
        self._texts[seq] = TextCounts()

    def close(self, seq: int) -> None:
        del self._texts[seq]

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return [self._propose(ask) for ask in asks]

    def _propose(self, ask: Ask) -> Draft:
        text = self._texts[ask.seq]
        text.read_on(ask.tokens)

        def children(run: Run) -> Iterator[tuple[int, float, Run]]:
            for token, score in self._after(text.counts, run):
                yield token, score, (*run, token)[-_LONGEST:]

        run = tuple(ask.tokens[-_LONGEST:])
        return Draft(grow(ask.tokens[-1], ask.price.limits.depth, ask.price, NAME, run, children))

    def _after(self, mine: Counts, run: Run) -> Sequence[tuple[int, float]]:
        """What comes after ``run``, the best first, each with its share of the times less one unit of doubt."""
        usual = self._static.get(run[-_STATIC:], {}) if len(run) >= _STATIC else {}
        for counts, wanted in ((mine, _LAX), (self._dynamic, _STRICT)):
            for start in range(len(run)) if counts else ():
                if (after := counts.get(run[start:])) is not None:
                    times, share = wanted[len(run) - start - 1]
                    if found := _clear(after, usual, times, share):
                        return found
        return _clear(usual, {}, *_LAX[_STATIC - 1])

    def truncate(self, seq: int, n: int) -> None:
        self._texts[seq].truncate(n)

    def close_all(self) -> None:
        self._texts.clear()


def _clear(after: Mapping[int, int], usual: Mapping[int, int], times: int, share: float) -> list[tuple[int, float]]:
    """The tokens of ``after``, the best first, if it was seen ``times`` times and the best has its ``share``; none
    otherwise. What is ``usual`` is better."""
    total = sum(after.values())
    if not after or total < times:
        return []
    best = max(after, key=lambda token: after[token] * (100 * usual.get(token, 0) or 1))
    if after[best] < share * total:
        return []
    others = sorted((token for token in after if token != best), key=lambda token: -after[token])
    return [(token, after[token] / (total + 1)) for token in (best, *others)]
