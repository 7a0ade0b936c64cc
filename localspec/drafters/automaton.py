"""A suffix automaton that grows token by token: every run of tokens that occurred, and how often.

Blumer et al., "The smallest automaton recognizing the subwords of a text" (1985). At most two states a token; growing
by one takes constant time on average, however long the text is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

#: Tokens of another text that are looked for; and a token that is in no vocabulary, to stand between texts.
LONGEST, BORDER = 64, -1
#: States whose count is raised for a new token, from the longest context down: more would make "aaaa…" quadratic.
_DEEP = 48


class SuffixAutomaton:
    """State 0 is the empty run. A state stands for all runs that end at the same places; ``length`` of the longest."""

    def __init__(self, tokens: Iterable[int] = ()) -> None:
        self._next: list[dict[int, int]] = [{}]
        self._link = [-1]
        self._length = [0]
        self._count = [0]
        self._last = 0
        for token in tokens:
            self.add(token)

    def add(self, token: int) -> None:
        """The text goes on with ``token``."""
        nexts, links, lengths, counts = self._next, self._link, self._length, self._count
        new = len(nexts)
        nexts.append({})
        lengths.append(lengths[self._last] + 1)
        links.append(0)
        counts.append(0)
        at = self._last
        while at >= 0 and token not in nexts[at]:
            nexts[at][token] = new
            at = links[at]
        if at >= 0:
            seen = nexts[at][token]
            links[new] = seen if lengths[seen] == lengths[at] + 1 else self._split(at, seen, token)
        self._last = new
        for _ in range(_DEEP):
            counts[new] += 1
            new = links[new]
            if new <= 0:
                break

    def _split(self, at: int, seen: int, token: int) -> int:
        """A state for the shorter runs of ``seen``, which from now on end at more places than the longer ones."""
        nexts, links, lengths = self._next, self._link, self._length
        twin = len(nexts)
        nexts.append(dict(nexts[seen]))
        lengths.append(lengths[at] + 1)
        links.append(links[seen])
        self._count.append(self._count[seen])
        links[seen] = twin
        while at >= 0 and nexts[at].get(token) == seen:
            nexts[at][token] = twin
            at = links[at]
        return twin

    def matches(self) -> Iterator[tuple[int, int]]:
        """Ends of the text that occurred before, the longest first: (state, length of the match). Their continuations
        are those states'."""
        at = self._link[self._last]
        return self.chain(at, self._length[at])

    def step(self, state: int, length: int, token: int) -> tuple[int, int]:
        """From the longest end of another text that occurs here, given as (state, length), to that of the same text
        with ``token`` behind it; no longer than `LONGEST`."""
        nexts, links, lengths = self._next, self._link, self._length
        while state and token not in nexts[state]:
            state = links[state]
            length = lengths[state]
        state = nexts[state].get(token, 0)
        length = min(length + 1, LONGEST) if state else 0
        while state and lengths[links[state]] >= length:
            state = links[state]
        return state, length

    def chain(self, state: int, length: int) -> Iterator[tuple[int, int]]:
        """A run and its shorter ends that occur more often, as `matches`."""
        while state > 0:
            yield state, length
            state = self._link[state]
            length = self._length[state]

    def followers(self, state: int) -> list[tuple[int, int, int]]:
        """What came after a run: (token, times, state), the most frequent first."""
        counts = self._count
        found = [(token, counts[to], to) for token, to in self._next[state].items() if token != BORDER]
        found.sort(key=lambda one: -one[1])
        return found


class Cursor:
    """The longest end of a growing text that occurs in an automaton of others."""

    def __init__(self, automaton: SuffixAutomaton) -> None:
        self._automaton = automaton
        self._read = 0
        self._at = (0, 0)

    def matches(self, tokens: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Ends of ``tokens`` that occur in the others, as `SuffixAutomaton.matches`. The text may have grown since the
        last call, and nothing else."""
        # What lies further back is part of no match.
        at, start = self._at, max(self._read, len(tokens) - LONGEST)
        if start > self._read:
            at = (0, 0)
        for token in tokens[start:]:
            at = self._automaton.step(*at, token)
        self._read, self._at = len(tokens), at
        return self._automaton.chain(*at)
