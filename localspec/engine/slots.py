"""Conversations in the cache: which one a new prompt can go on from, and what has to make room.

A slot outlives its answer, so that the next turn finds its prefix. Target and drafters are opened, cut back and
closed here and nowhere else: one function rolls all of them back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from localspec.backends.base import Target
from localspec.engine.panel import Panel


@dataclass(eq=False, slots=True)
class Slot:
    """One conversation. ``tokens`` is its text; what is in the cache is a prefix of it."""

    seq: int
    tokens: list[int] = field(default_factory=list)
    busy: bool = False
    used: int = 0


class Slots:
    """All conversations of an engine, at most ``target.caps.max_sequences``."""

    def __init__(self, target: Target, panel: Panel) -> None:
        self._target = target
        self._panel = panel
        self._slots: list[Slot] = []
        self._clock = 0

    @property
    def cells_used(self) -> int:
        """Cells of the target's cache in use or promised: the whole text of a running conversation, what is left of
        the others. A shared prefix counts for each that shares it."""
        return sum(len(slot.tokens) if slot.busy else self._target.n_past(slot.seq) for slot in self._slots)

    def fits(self, prompt: Sequence[int]) -> bool:
        """Whether there is room for ``prompt`` beside the running conversations."""
        running = sum(len(slot.tokens) for slot in self._slots if slot.busy)
        return running + len(prompt) <= self._target.caps.n_ctx

    def take(self, prompt: Sequence[int]) -> Slot | None:
        """A slot for ``prompt`` whose cache holds as much of it as any conversation can offer, all but the last
        token at most. ``None``: every slot is busy."""
        source, shared = self._best_source(prompt)
        free = len(self._slots) < self._target.caps.max_sequences
        if source is not None and not source.busy and shared == self._target.n_past(source.seq):
            slot = source
            self.cut(slot, shared)
        elif free:
            slot = self._fork(source, shared) if source is not None and shared else self._open()
        else:
            idle = [slot for slot in self._slots if not slot.busy]
            if not idle:
                return None
            slot = max(idle, key=lambda slot: (self._shared(slot, prompt), -slot.used))
            self.cut(slot, self._shared(slot, prompt))
        self._panel.resume(slot.seq)
        n_past = self._target.n_past(slot.seq)
        if gap := self._panel.gap(slot.seq, n_past):
            # The target alone: whoever misses these tokens has none of them, and to the others they are no news.
            self._target.truncate(slot.seq, n_past - gap)
        self._clock += 1
        slot.busy, slot.used, slot.tokens = True, self._clock, list(prompt)
        return slot

    def _best_source(self, prompt: Sequence[int]) -> tuple[Slot | None, int]:
        ranked = [(self._shared(slot, prompt), not slot.busy, slot.used, slot) for slot in self._slots]
        if not ranked:
            return None, 0
        shared, _, _, slot = max(ranked, key=lambda item: item[:3])
        return slot, shared

    def _shared(self, slot: Slot, prompt: Sequence[int]) -> int:
        most = min(len(prompt) - 1, self._target.n_past(slot.seq))
        if slot.tokens[:most] == list(prompt[:most]):
            return most
        return next(i for i in range(most) if slot.tokens[i] != prompt[i])

    def _open(self) -> Slot:
        slot = Slot(self._target.open())
        self._panel.open(slot.seq)
        self._slots.append(slot)
        return slot

    def _fork(self, source: Slot, n: int) -> Slot:
        slot = Slot(self._target.fork(source.seq, n))
        self._panel.fork(source.seq, slot.seq, n)
        self._slots.append(slot)
        return slot

    def cut(self, slot: Slot, n: int) -> None:
        """Takes the cache of target and drafters back to the first ``n`` tokens of the text, or further where a
        model cannot stop there."""
        left = self._target.truncate(slot.seq, n)
        self._panel.truncate(slot.seq, left)

    def release(self, slot: Slot) -> None:
        """The answer is over; the conversation stays for the next turn."""
        self.cut(slot, len(slot.tokens))
        slot.busy = False

    def drop(self, slot: Slot) -> None:
        """Forgets a conversation whose state is in doubt, or that has to make room."""
        self._slots.remove(slot)
        self._target.close(slot.seq)
        self._panel.close(slot.seq)

    def forget(self) -> None:
        """Drops all idle conversations."""
        for slot in [slot for slot in self._slots if not slot.busy]:
            self.drop(slot)

    def make_room(self) -> bool:
        """Drops idle conversations, the longest unused first, until the running ones have the cells of their text."""
        while self.cells_used > self._target.caps.n_ctx:
            idle = [slot for slot in self._slots if not slot.busy]
            if not idle:
                return False
            self.drop(min(idle, key=lambda slot: slot.used))
        return True
