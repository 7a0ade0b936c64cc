"""``suffix``: what followed wherever the text ended like this before.

SuffixDecoding (arXiv 2411.04975) over a conversation: the longest end of the text that occurred before is found in
constant time, however long the match or the text; its continuations are weighted by how often they came, and the more
of the text matches, the further ahead is guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from localspec.drafters.automaton import SuffixAutomaton
from localspec.drafters.base import Ask, Draft, TextDrafter
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
        for state, length in automaton.matches():
            if length < self._options.min_match:
                break
            if automaton.followers(state):
                depth = min(ask.price.limits.depth, max(int(self._options.factor * length), 1))
                children = partial(continuations, automaton)
                return Draft(grow(ask.tokens[-1], depth, ask.price, NAME, (state, length), children))
        return Draft.nothing(ask)

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
