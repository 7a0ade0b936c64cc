"""``suffix``: what followed wherever the text ended like this before.

SuffixDecoding (arXiv 2411.04975) over a conversation: the longest end of the text that occurred before is found in
constant time, however long the match or the text; its continuations are weighted by how often they came, and the more
of the text matches, the further ahead is guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from localspec.drafters.automaton import BORDER, Cursor, SuffixAutomaton
from localspec.drafters.base import CORPUS, EARLIER, Ask, Draft, TextDrafter
from localspec.drafters.best_first import grow

NAME = "suffix"


@dataclass(frozen=True, slots=True)
class SuffixOptions:
    """``min_match`` tokens must match; up to ``factor`` tokens are guessed for each that does."""

    min_match: int = 1
    factor: float = 8.0


@dataclass(slots=True)
class _Past:
    """One conversation: its text as far as it was read."""

    read: int = 0
    automaton: SuffixAutomaton = field(default_factory=SuffixAutomaton)


#: For texts that are not the conversation's own: one token that also occurs there says nothing.
ELSEWHERE = SuffixOptions(min_match=2)


class Suffix(TextDrafter):
    """State is one automaton a conversation."""

    name = NAME

    def __init__(self, options: SuffixOptions | None = None) -> None:
        self._options = options or SuffixOptions()
        self._pasts: dict[int, _Past] = {}

    def open(self, seq: int) -> None:
        self._pasts[seq] = _Past()

    def close(self, seq: int) -> None:
        del self._pasts[seq]

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return [self._propose(ask) for ask in asks]

    def _propose(self, ask: Ask) -> Draft:
        automaton = self._caught_up(self._pasts[ask.seq], ask.tokens)
        return _guess(ask, automaton, automaton.matches(), self._options, NAME)

    def _caught_up(self, past: _Past, tokens: Sequence[int]) -> SuffixAutomaton:
        for token in tokens[past.read :]:
            past.automaton.add(token)
        past.read = len(tokens)
        return past.automaton

    def truncate(self, seq: int, n: int) -> None:
        # An automaton forgets nothing, so it is made anew, at the next guess. What was cut off may belong to another
        # conversation that had the place before: it is no source.
        if n < self._pasts[seq].read:
            self._pasts[seq] = _Past()

    def close_all(self) -> None:
        self._pasts.clear()


@dataclass(slots=True)
class _Reading:
    """The texts that a request named, and where in them its answer is."""

    texts: Sequence[Sequence[int]]
    automaton: SuffixAutomaton
    cursor: Cursor


class Earlier(TextDrafter):
    """``earlier``: what stands in the texts that a request named, such as the answer that is being asked for again.
    They are forgotten when the request ends."""

    name = EARLIER

    def __init__(self, options: SuffixOptions = ELSEWHERE) -> None:
        self._options = options
        self._readings: dict[int, _Reading] = {}

    def open(self, seq: int) -> None:
        pass

    def close(self, seq: int) -> None:
        self._readings.pop(seq, None)

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return [self._propose(ask) for ask in asks]

    def _propose(self, ask: Ask) -> Draft:
        reading = self._readings.get(ask.seq)
        if reading is None or reading.texts is not ask.earlier:
            automaton = automaton_of(ask.earlier)
            reading = self._readings[ask.seq] = _Reading(ask.earlier, automaton, Cursor(automaton))
        return _guess(ask, reading.automaton, reading.cursor.matches(ask.tokens), self._options, EARLIER)

    def truncate(self, seq: int, n: int) -> None:
        # That the text is cut to its length says that the request is over; if it is not, the next ask names the texts.
        self._readings.pop(seq, None)

    def close_all(self) -> None:
        self._readings.clear()


class SuffixCorpus(TextDrafter):
    """``suffix-corpus``: what stands in texts that the user gave. All conversations share the automaton and none adds
    to it; state is where a conversation is in it."""

    name = CORPUS

    def __init__(self, texts: Iterable[Sequence[int]], options: SuffixOptions = ELSEWHERE) -> None:
        self._options = options
        self._automaton = automaton_of(texts)
        self._cursors: dict[int, Cursor] = {}

    def open(self, seq: int) -> None:
        self._cursors[seq] = Cursor(self._automaton)

    def close(self, seq: int) -> None:
        del self._cursors[seq]

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        matches = [self._cursors[ask.seq].matches(ask.tokens) for ask in asks]
        return [
            _guess(ask, self._automaton, found, self._options, CORPUS) for ask, found in zip(asks, matches, strict=True)
        ]

    def truncate(self, seq: int, n: int) -> None:
        self._cursors[seq] = Cursor(self._automaton)

    def close_all(self) -> None:
        self._cursors.clear()


def automaton_of(texts: Iterable[Sequence[int]]) -> SuffixAutomaton:
    """What occurs in any of the texts."""
    return SuffixAutomaton(token for text in texts for token in (*text, BORDER))


def _guess(
    ask: Ask, automaton: SuffixAutomaton, matches: Iterable[tuple[int, int]], options: SuffixOptions, source: str
) -> Draft:
    """What followed the longest of the ``matches`` that anything followed."""
    for state, length in matches:
        if length < options.min_match:
            break
        if automaton.followers(state):
            depth = min(ask.price.limits.depth, max(int(options.factor * length), 1))
            children = partial(continuations, automaton)
            return Draft(grow(ask.tokens[-1], depth, ask.price, source, (state, length), children))
    return Draft.nothing(ask)


def continuations(automaton: SuffixAutomaton, at: tuple[int, int]) -> Iterator[tuple[int, float, tuple[int, int]]]:
    """What followed a run, given as (state, length of the match).

    A child's score is its share of the times the run occurred, less one unit of doubt for every token that matched: a
    single match of length L is believed to L / (L + 1).
    """
    state, matched = at
    followers = automaton.followers(state)
    total = sum(times for _, times, _ in followers)
    for token, times, to in followers:
        yield token, times / total * matched / (matched + 1), (to, matched + 1)
