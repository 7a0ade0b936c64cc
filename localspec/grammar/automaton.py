"""The automaton of a grammar: states made when they are first reached, and never changed.

A state is the set of all ways to read on, each a stack of what is still to be matched (the method of llama.cpp's
grammar sampler; stacks share their lower parts as in Tomita's graph-structured stack, 1986). What is left of a rule
whose end was reached takes no place on a stack, so that lists of any length need no more states than short ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.errors import UsageError
from localspec.grammar.rules import Alternative, Rules

Numbers = NDArray[np.integer[Any]]

DEAD, UNKNOWN = -1, -2
MAX_STACKS = 4096  # in one state
MAX_SIZE = 1_000_000  # stacks of all states

_DONE = 0  # the empty stack


class Automaton:
    """States are numbered as they are made; 0 is the start. Bytes that no rule tells apart are one *kind* of byte:
    ``kinds`` is ``[256]``."""

    def __init__(self, rules: Rules) -> None:
        self.kinds, self._members = _kinds(rules.sets)
        self._n_kinds = len(self._members)
        self._kind_sets = [frozenset(self.kinds[_bytes(one)].tolist()) for one in rules.sets]
        # A place is what is left of an alternative: a symbol and the place behind it. A stack is a place and the stack
        # below. 0 is nothing left, and the empty stack.
        self._places: dict[tuple[int, int], int] = {}
        self._lefts: list[tuple[int, int]] = [(-1, 0)]
        self._starts = [[self._place(one) for one in alternatives] for alternatives in rules.alternatives]
        self._stacks: dict[tuple[int, int], int] = {}
        self._tops: list[tuple[int, int]] = [(0, 0)]
        self._states: dict[frozenset[int], int] = {}
        self._sets: list[frozenset[int]] = []
        self._size = 0
        self._table = np.full((64, self._n_kinds), UNKNOWN, np.int32)
        self.start = self._state(self._closed([self._push(self._place((rules.root,)), _DONE)]))

    @property
    def n_states(self) -> int:
        return len(self._sets)

    def accepts(self, state: int) -> bool:
        """Whether the text may end here."""
        return _DONE in self._sets[state]

    def must_end(self, state: int) -> bool:
        """Whether the text cannot go on."""
        return self.accepts(state) and not len(self._ways(state))

    def _ways(self, state: int) -> NDArray[np.intp]:
        """The kinds of bytes that may come."""
        after = self.steps(np.full(self._n_kinds, state, np.int32), np.arange(self._n_kinds))
        return np.flatnonzero(after != DEAD)

    def step(self, state: int, kind: int) -> int:
        """The state after a byte of this kind, or `DEAD`.

        Raises:
            UsageError: the grammar is too ambiguous to be followed, or takes too much memory.
        """
        found = int(self._table[state, kind])
        if found == UNKNOWN:
            found = self._make(state, kind)
            self._table[state, kind] = found
        return found

    def steps(self, states: Numbers, kinds: Numbers) -> NDArray[np.int32]:
        """`step` for many at once."""
        found = self._table[states, kinds]
        if (missing := found == UNKNOWN).any():
            pairs = np.unique(states[missing].astype(np.int64) * self._n_kinds + kinds[missing])
            for pair in pairs.tolist():
                self.step(*divmod(pair, self._n_kinds))
            found = self._table[states, kinds]
        return found

    def read(self, state: int, text: bytes) -> int:
        """The state after ``text``, or `DEAD`."""
        for byte in text:
            if state == DEAD:
                return DEAD
            state = self.step(state, int(self.kinds[byte]))
        return state

    def forced(self, state: int, most: int) -> bytes:
        """The bytes that must come, ``most`` at most: as long as there is one choice and the text may not end."""
        text = bytearray()
        while len(text) < most and not self.accepts(state):
            ways = self._ways(state)
            if len(ways) != 1 or len(self._members[ways[0]]) != 1:
                break
            text.append(self._members[ways[0]][0])
            state = self.step(state, int(ways[0]))
        return bytes(text)

    # -- making states

    def _make(self, state: int, kind: int) -> int:
        after = []
        for stack in self._sets[state]:
            if stack != _DONE:
                place, below = self._tops[stack]
                symbol, rest = self._lefts[place]
                if kind in self._kind_sets[~symbol]:
                    after.append(self._push(rest, below))
        return self._state(self._closed(after)) if after else DEAD

    def _state(self, stacks: frozenset[int]) -> int:
        state = self._states.get(stacks)
        if state is None:
            self._size += len(stacks)
            if self._size > MAX_SIZE:
                raise UsageError(
                    "the grammar takes too much memory to be followed through this text",
                    hint="Nest less, or repeat without a limit.",
                )
            state = self._states[stacks] = len(self._sets)
            self._sets.append(stacks)
            if state >= len(self._table):
                more = np.full_like(self._table, UNKNOWN)
                self._table = np.concatenate((self._table, more))
        return state

    def _place(self, symbols: Alternative) -> int:
        place = 0
        for symbol in reversed(symbols):
            left = (symbol, place)
            known = self._places.get(left)
            if known is None:
                known = self._places[left] = len(self._lefts)
                self._lefts.append(left)
            place = known
        return place

    def _push(self, place: int, below: int) -> int:
        if not place:
            return below
        stack = self._stacks.get((place, below))
        if stack is None:
            stack = self._stacks[place, below] = len(self._tops)
            self._tops.append((place, below))
        return stack

    def _closed(self, stacks: list[int]) -> frozenset[int]:
        """Rules on top are replaced by what they stand for, until a byte or nothing is on top of every stack."""
        seen = set(stacks)
        ready = set()
        while stacks:
            stack = stacks.pop()
            if stack == _DONE:
                ready.add(stack)
                continue
            place, below = self._tops[stack]
            symbol, behind = self._lefts[place]
            if symbol < 0:
                ready.add(stack)
                continue
            rest = self._push(behind, below)
            for alternative in self._starts[symbol]:
                new = self._push(alternative, rest)
                if new not in seen:
                    seen.add(new)
                    stacks.append(new)
            if len(seen) > MAX_STACKS:
                raise UsageError(
                    f"the grammar is too ambiguous: one place in the text can be read in more than {MAX_STACKS} ways",
                    hint="Give its alternatives different beginnings.",
                )
        return frozenset(ready)


def _bytes(set_: int) -> list[int]:
    return [byte for byte in range(256) if set_ >> byte & 1]


def _kinds(sets: tuple[int, ...]) -> tuple[NDArray[np.uint8], list[list[int]]]:
    """The kind of each byte, and the bytes of each kind."""
    numbers: dict[tuple[int, ...], int] = {}
    members: list[list[int]] = []
    held: list[list[int]] = [[] for _ in range(256)]
    for number, one in enumerate(sets):
        for byte in _bytes(one):
            held[byte].append(number)
    kinds = np.zeros(256, np.uint8)
    for byte in range(256):
        signature = tuple(held[byte])
        if signature not in numbers:
            numbers[signature] = len(members)
            members.append([])
        kinds[byte] = numbers[signature]
        members[numbers[signature]].append(byte)
    return kinds, members
