"""Conversations in the cache: which one a new prompt can go on from, and what has to make room.

A slot outlives its answer, so that the next turn finds its prefix, and so does any other prompt that begins alike: it
is forked, and shares the cells. Target and drafters are opened, cut back and closed here and nowhere else: one function
rolls all of them back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from localspec.backends.base import Target
from localspec.engine.panel import Panel
from localspec.engine.prefixes import Match, Prefixes, common


@dataclass(eq=False, slots=True)
class Slot:
    """One conversation. ``tokens`` is its text; what is in the cache is a prefix of it."""

    seq: int
    tokens: list[int] = field(default_factory=list)
    busy: bool = False
    used: int = 0


class Slots:
    """All conversations of an engine, at most ``target.caps.max_sequences``.

    Args:
        closed: hears of sequences that are no more.
    """

    def __init__(self, target: Target, panel: Panel, closed: Callable[[int], None] = lambda seq: None) -> None:
        self._target = target
        self._panel = panel
        self._closed = closed
        self._slots: list[Slot] = []
        self._prefixes = Prefixes()
        self._clock = 0

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def cells_used(self) -> int:
        """Cells of the target's cache in use or promised: the whole text of a running conversation, what is left of
        the others. What several share counts once."""
        self._sync()
        return self._prefixes.cells + self._promised

    @property
    def _promised(self) -> int:
        """Cells that running conversations have yet to fill with their text."""
        return sum(len(slot.tokens) - self._prefixes.length(slot.seq) for slot in self._busy)

    @property
    def _busy(self) -> list[Slot]:
        return [slot for slot in self._slots if slot.busy]

    def _sync(self) -> None:
        """Takes in what passes have added to running conversations."""
        for slot in self._busy:
            self._follow(slot)

    def _follow(self, slot: Slot) -> None:
        n = self._target.n_past(slot.seq)
        self._prefixes.cut(slot.seq, n)
        self._prefixes.grow(slot.seq, slot.tokens[self._prefixes.length(slot.seq) : n])

    def fits(self, prompt: Sequence[int], spare: int = 0) -> bool:
        """Whether there is room for ``prompt`` beside the running conversations, and ``spare`` cells more."""
        self._sync()
        running = [slot.seq for slot in self._busy]
        new = len(prompt) - self._prefixes.find(prompt[:-1], running).held
        return self._prefixes.cells_of(running) + self._promised + new + spare <= self._target.caps.n_ctx

    def gains_by_waiting(self, prompt: Sequence[int]) -> int:
        """Tokens of ``prompt`` that a running conversation is about to read, beyond those that are in the cache: who
        waits for them can share them."""
        caps = self._target.caps
        if caps.rollback is not None or not caps.trees:  # nothing is shared there
            return 0
        self._sync()
        reading = (slot for slot in self._busy if self._prefixes.length(slot.seq) < len(slot.tokens) - 1)
        soon = max((common(slot.tokens[:-1], prompt[:-1]) for slot in reading), default=0)
        return soon - self._prefixes.find(prompt[:-1]).length if soon else 0

    def take(self, prompt: Sequence[int]) -> Slot | None:
        """A slot for ``prompt`` whose cache holds as much of it as any conversation can offer, all but the last
        token at most. ``None``: every slot is busy."""
        self._sync()
        match = self._prefixes.find(prompt[:-1])
        source = self._source(match)
        slot = self._slot(source, match.length)
        if slot is None:
            return None
        self._panel.resume(slot.seq)
        n_past = self._target.n_past(slot.seq)
        if gap := self._panel.gap(slot.seq, n_past):
            # The target alone: whoever misses these tokens has none of them, and to the others they are no news.
            self._target.truncate(slot.seq, n_past - gap)
        slot.busy, slot.used, slot.tokens = True, self._tick(), list(prompt)
        self._follow(slot)
        return slot

    def _tick(self) -> int:
        self._clock += 1
        return self._clock

    def _source(self, match: Match) -> Slot | None:
        """Who has the most of a prompt: rather one that ends there, and one that was used lately."""
        holders = [slot for slot in self._slots if slot.seq in match.holders] if match.length else []

        def rank(slot: Slot) -> tuple[bool, bool, int]:
            return not slot.busy and self._prefixes.length(slot.seq) == match.length, not slot.busy, slot.used

        return max(holders, key=rank, default=None)

    def _slot(self, source: Slot | None, n: int) -> Slot | None:
        """A fork of the source; or the source itself, where nothing of it is lost by that, or its smaller part and less
        than by dropping the conversation that was not used for longest."""
        tail = None if source is None or source.busy else self._prefixes.length(source.seq) - n
        if source is not None and tail == 0:
            return source
        if len(self._slots) == self._target.caps.max_sequences:
            others = [slot for slot in self._slots if not slot.busy and slot is not source]
            oldest = min(others, key=lambda slot: slot.used, default=None)
            if source is not None and tail is not None and (oldest is None or self._loses_less(tail, n, oldest)):
                self.cut(source, n)
                return source
            if oldest is None:
                return None
            self.drop(oldest)
        if source is None:
            return self._open()
        if not source.busy:
            source.used = self._tick()
        return self._fork(source, n)

    def _loses_less(self, tail: int, n: int, oldest: Slot) -> bool:
        return tail < min(n, self._prefixes.own(oldest.seq))

    def _open(self) -> Slot:
        slot = Slot(self._target.open())
        self._panel.open(slot.seq)
        self._prefixes.open(slot.seq)
        self._slots.append(slot)
        return slot

    def _fork(self, source: Slot, n: int) -> Slot:
        slot = Slot(self._target.fork(source.seq, n), source.tokens[:n])
        self._panel.fork(source.seq, slot.seq, n)
        self._prefixes.fork(source.seq, slot.seq, self._target.n_past(slot.seq))
        self._slots.append(slot)
        return slot

    def cut(self, slot: Slot, n: int) -> None:
        """Takes the cache of target and drafters back to the first ``n`` tokens of the text, or further where a
        model cannot stop there."""
        left = self._target.truncate(slot.seq, n)
        self._panel.truncate(slot.seq, left)
        self._follow(slot)

    def release(self, slot: Slot) -> None:
        """The answer is over; the conversation stays for the next turn."""
        self.cut(slot, len(slot.tokens))
        slot.busy = False

    def drop(self, slot: Slot) -> None:
        """Forgets a conversation whose state is in doubt, or that has to make room."""
        self._slots.remove(slot)
        self._prefixes.close(slot.seq)
        self._target.close(slot.seq)
        self._panel.close(slot.seq)
        self._closed(slot.seq)

    def forget(self) -> None:
        """Drops all idle conversations."""
        for slot in [slot for slot in self._slots if not slot.busy]:
            self.drop(slot)

    def make_room(self, spare: int = 0) -> bool:
        """Drops idle conversations, the longest unused first, until the running ones have the cells of their text, and
        ``spare`` more if that can be had. Whether they have those of their text."""
        while self.cells_used + spare > self._target.caps.n_ctx:
            idle = [slot for slot in self._slots if not slot.busy]
            if not idle:
                return self.cells_used <= self._target.caps.n_ctx
            self.drop(min(idle, key=lambda slot: slot.used))
        return True
