"""Several heads in a row: the first guesses after the text, the second after the guess of the first, and so on.

So a tree of guesses is as deep as there are heads, and level d of it comes from head d. A head knows the text, and the
guesses before its own, by what it read itself: each has a cache. Text comes to the first head at once; a later one is
told of it, and reads it when it is first asked for a guess behind it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from localspec.backends.base import CARRIED, Grow, Head, Row, Rows, TargetCaps, Work
from localspec.sampling import SamplerState
from localspec.spec.tree import TokenTree
from localspec.vocab import Vocab

States = NDArray[np.float32]


@dataclass(slots=True)
class _Part:
    """One head's of a sequence: its own sequence, and committed text that it has yet to read."""

    lane: int
    tokens: list[int] = field(default_factory=list)
    states: list[States] = field(default_factory=list)  # one a token

    def note(self, tokens: Sequence[int], states: Sequence[States]) -> None:
        self.tokens += tokens
        self.states += states

    def cut(self, n: int) -> None:
        """Leaves the first ``n`` of what is yet to be read."""
        del self.tokens[n:], self.states[n:]


@dataclass(slots=True)
class _Growing:
    """A tree that is not committed: ``level`` is the head that saw all of it; ``states`` are one a node."""

    tree: TokenTree
    states: States
    level: int = 0


class ChainedHead:
    """Heads of one kind on one target as a `Head`. One level of all trees has ``level_rows`` nodes at most, for which
    the others keep room."""

    grow: Grow | None = None

    def __init__(self, heads: Sequence[Head], level_rows: int) -> None:
        self._heads = heads
        self._first = heads[0]
        kept = (len(heads) - 1) * level_rows
        self._caps = replace(self._first.caps, max_rows=self._first.caps.max_rows - kept)
        self._parts: dict[int, list[_Part]] = {}
        self._growing: dict[int, _Growing] = {}

    @property
    def layers(self) -> tuple[int, ...]:
        return self._first.layers

    @property
    def deepest(self) -> int | None:
        return len(self._heads)

    @property
    def caps(self) -> TargetCaps:
        return self._caps

    @property
    def vocab(self) -> Vocab:
        return self._first.vocab

    def open(self) -> int:
        parts = [_Part(head.open()) for head in self._heads]
        seq = parts[0].lane
        self._parts[seq] = parts
        return seq

    def fork(self, seq: int, n: int) -> int:
        parts = []
        for head, old in zip(self._heads, self._parts[seq], strict=True):
            read = min(head.n_past(old.lane), n)
            new = _Part(head.fork(old.lane, read))
            new.note(old.tokens[: n - read], old.states[: n - read])
            parts.append(new)
        self._parts[parts[0].lane] = parts
        return parts[0].lane

    def close(self, seq: int) -> None:
        self._growing.pop(seq, None)
        for head, part in zip(self._heads, self._parts.pop(seq), strict=True):
            head.close(part.lane)

    def n_past(self, seq: int) -> int:
        return self._first.n_past(seq)

    def encode(self, seq: int, features: Mapping[int, States]) -> States:
        return self._first.encode(seq, features)

    def forward(self, work: Sequence[Work]) -> list[Rows]:
        """Work on a new tree is the first head's, on a level more the next one's; all entries are at one level."""
        try:
            for item in work:
                self._extend(item)
            return self._pass(work, self._growing[work[0].seq].level)
        except BaseException:
            for item in work:
                self.commit(item.seq, ())
            raise

    def _extend(self, item: Work) -> None:
        assert item.states is not None, "a head reads states"
        if not item.done:
            self._growing[item.seq] = _Growing(item.tree, item.states)
            return
        growing = self._growing[item.seq]
        growing.tree, growing.level = item.tree, growing.level + 1
        growing.states = np.concatenate([growing.states, item.states])

    def _pass(self, work: Sequence[Work], level: int) -> list[Rows]:
        head = self._heads[level]
        mine = []
        for item in work:
            part, growing = self._parts[item.seq][level], self._growing[item.seq]
            self._catch_up(head, part)
            mine.append(replace(item, seq=part.lane, done=0, states=growing.states))
        rows = head.forward(mine)
        return [_Newest(own, item) for own, item in zip(rows, work, strict=True)]

    def _catch_up(self, head: Head, part: _Part) -> None:
        while part.tokens:
            piece = part.tokens[: self._caps.max_rows]
            head.forward([Work.prompt(part.lane, piece, states=np.stack(part.states[: len(piece)]))])
            head.commit(part.lane, range(len(piece)))
            del part.tokens[: len(piece)], part.states[: len(piece)]

    def commit(self, seq: int, path: Sequence[int]) -> None:
        growing = self._growing.pop(seq, None)
        if growing is None:
            return
        for level, (head, part) in enumerate(zip(self._heads, self._parts[seq], strict=True)):
            if level <= growing.level:
                head.commit(part.lane, path)
            else:
                part.note([growing.tree.tokens[node] for node in path], [growing.states[node] for node in path])

    def truncate(self, seq: int, n: int) -> int:
        left = min(self._cut(seq, n))
        # One that had to go back further takes the others with it.
        return left if left == n else min(self._cut(seq, left))

    def _cut(self, seq: int, n: int) -> list[int]:
        """What each head knows then."""
        known = []
        for head, part in zip(self._heads, self._parts[seq], strict=True):
            read = head.n_past(part.lane)
            part.cut(max(n - read, 0))
            known.append(len(part.tokens) + (head.truncate(part.lane, n) if read > n else read))
        return known

    def interrupt(self, on: bool) -> None:
        for head in self._heads:
            head.interrupt(on)

    def set_threads(self, n: int) -> None:
        for head in self._heads:
            head.set_threads(n)

    def close_all(self) -> None:
        for head in reversed(self._heads):  # the first may own what all of them use
            head.close_all()


class _Newest:
    """Of the rows of a whole tree, those of the nodes that were asked for."""

    def __init__(self, rows: Rows, item: Work) -> None:
        self._rows = rows
        self._done = item.done

    def logits(self, node: int) -> Row:
        return self._rows.logits(node)

    def draw(self, node: int, state: SamplerState) -> int:
        return self._rows.draw(node, state)

    @property
    def features(self) -> Mapping[int, States]:
        return {CARRIED: self._rows.features[CARRIED][self._done :]}
