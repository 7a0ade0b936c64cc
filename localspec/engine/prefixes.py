"""Which conversations share which cells: a radix tree over their texts as they lie in the cache.

A *run* is a stretch of text in cells of its own, behind its parent's. A conversation ends with a run, and its text is
that of all runs from the root to there. A fork shares the runs it was forked from, and so do two forks with each other:
what they share counts once, and stays while one of them does. Conversations that came to the same words each by itself
have cells of their own, so runs side by side may begin alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field


@dataclass(eq=False, slots=True)
class _Run:
    """``ends``: conversations whose text ends with it."""

    tokens: list[int]
    parent: _Run | None
    children: list[_Run] = field(default_factory=list)
    ends: set[int] = field(default_factory=set)

    def subtree(self) -> Iterator[int]:
        """Conversations that go through it."""
        waiting = [self]
        while waiting:
            run = waiting.pop()
            yield from run.ends
            waiting += run.children

    def upwards(self) -> Iterator[_Run]:
        """From here to the root, which has no text and is left out."""
        run = self
        while run.parent is not None:
            yield run
            run = run.parent


@dataclass(frozen=True, slots=True)
class Match:
    """The longest beginning of a text that is in the cache: its length, who has it, and how much of it they hold who
    were asked about."""

    length: int
    holders: frozenset[int]
    held: int = 0


class Prefixes:
    """Conversations by number. ``cells`` is what all of them take."""

    def __init__(self) -> None:
        self._root = _Run([], None)
        self._at: dict[int, _Run] = {}
        self._lengths: dict[int, int] = {}
        self.cells = 0

    def open(self, seq: int) -> None:
        """A conversation without text."""
        self._at[seq], self._lengths[seq] = self._root, 0
        self._root.ends.add(seq)

    def fork(self, seq: int, new: int, n: int) -> None:
        """A conversation that shares the first ``n`` tokens of another."""
        self._at[new], self._lengths[new] = self._at[seq], self._lengths[seq]
        self._at[new].ends.add(new)
        self.cut(new, n)

    def close(self, seq: int) -> None:
        self.cut(seq, 0)
        del self._at[seq], self._lengths[seq]
        self._root.ends.remove(seq)

    def length(self, seq: int) -> int:
        """Tokens of a conversation."""
        return self._lengths[seq]

    def grow(self, seq: int, tokens: Sequence[int]) -> None:
        """A conversation goes on by ``tokens``, in cells of its own."""
        if not tokens:
            return
        run = self._at[seq]
        if run is self._root or run.ends != {seq} or run.children:
            run.ends.remove(seq)
            run.children.append(_Run([], run, ends={seq}))
            run = self._at[seq] = run.children[-1]
        run.tokens += tokens
        self._lengths[seq] += len(tokens)
        self.cells += len(tokens)

    def cut(self, seq: int, n: int) -> None:
        """A conversation goes back to its first ``n`` tokens."""
        end, last = self._lengths[seq], self._at[seq]
        if n >= end:
            return
        run = last
        while n <= end - len(run.tokens) and run.parent is not None:
            end, run = end - len(run.tokens), run.parent
        if n < end:
            run = self._split(run, len(run.tokens) - (end - n))
        last.ends.remove(seq)
        run.ends.add(seq)
        self._at[seq], self._lengths[seq] = run, n
        self._tidy(last)

    def _split(self, run: _Run, at: int) -> _Run:
        """Cuts a run in two; returns its first part."""
        parent = run.parent
        assert parent is not None
        first = _Run(run.tokens[:at], parent, [run])
        parent.children[parent.children.index(run)] = first
        run.tokens, run.parent = run.tokens[at:], first
        return first

    def _tidy(self, run: _Run) -> None:
        """Gives up runs that nobody goes through, and joins what is one run again."""
        while (parent := run.parent) is not None and not run.ends and not run.children:
            self.cells -= len(run.tokens)
            parent.children.remove(run)
            run = parent
        if run.parent is not None and not run.ends and len(run.children) == 1:
            (rest,) = run.children
            run.tokens += rest.tokens
            run.children, run.ends = rest.children, rest.ends
            for child in run.children:
                child.parent = run
            self._at.update(dict.fromkeys(run.ends, run))

    # -- questions

    def find(self, text: Sequence[int], of: Iterable[int] = ()) -> Match:
        """The longest beginning of ``text`` that some conversation has, and how much of it those of ``of`` hold."""
        length, run = self._deepest(self._root, text, 0)
        theirs = self._runs(of)
        path = [one for one in run.upwards() if one in theirs]
        whole = sum(len(one.tokens) for one in run.upwards())
        held = sum(len(one.tokens) for one in path) - (whole - length if run in theirs else 0)
        return Match(length, frozenset(run.subtree()), held)

    def _deepest(self, run: _Run, text: Sequence[int], at: int) -> tuple[int, _Run]:
        best = at, run
        for child in run.children:
            n = common(child.tokens, text, at)
            found = self._deepest(child, text, at + n) if n == len(child.tokens) else (at + n, child)
            if n and found[0] > best[0]:
                best = found
        return best

    def cells_of(self, some: Iterable[int]) -> int:
        """Cells that these conversations hold together."""
        return sum(len(run.tokens) for run in self._runs(some))

    def own(self, seq: int) -> int:
        """Cells that go when this conversation does."""
        cells, below = 0, None
        for run in self._at[seq].upwards():
            if run.ends - {seq} or any(child is not below for child in run.children):
                break
            cells, below = cells + len(run.tokens), run
        return cells

    def _runs(self, some: Iterable[int]) -> set[_Run]:
        """Every run that one of these goes through."""
        runs: set[_Run] = set()
        for seq in some:
            for run in self._at[seq].upwards():
                if run in runs:
                    break
                runs.add(run)
        return runs


def common(tokens: Sequence[int], text: Sequence[int], at: int = 0) -> int:
    """How many of ``tokens`` stand in ``text`` from ``at`` on."""
    most = min(len(tokens), len(text) - at)
    if list(tokens[:most]) == list(text[at : at + most]):
        return most
    return next(i for i in range(most) if tokens[i] != text[at + i])
