"""Who comes in, who reads how much of a prompt in a pass, and who makes room for others.

First come, first served: what waits for cells or for a place keeps all behind it waiting, so nobody starves. Only who
waits for a prompt that another answer is reading, to share it, lets others pass; that wait ends by itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from localspec.backends.base import Target, Work
from localspec.engine.answer import Answer
from localspec.engine.passes import Piece
from localspec.engine.slots import Slot, Slots

#: Tokens of a prompt that are worth waiting for.
_WORTH = 16
#: Cells that every running answer has left to grow by when another comes in, so that it need not make room at once.
_SPARE = 16


class Scheduler:
    """All requests of an engine that are not over: ``waiting`` ones, the next first, and ``running`` ones.

    Args:
        most_running: at a time.
        prompt_chunk: tokens of prompts that a pass reads; half as many where answers are verified beside them, which
            wait for it.
    """

    def __init__(self, target: Target, slots: Slots, *, most_running: int, prompt_chunk: int) -> None:
        self._target = target
        self._slots = slots
        self._most_running = min(most_running, target.caps.max_sequences)
        self._chunk = min(prompt_chunk, target.caps.max_rows)
        self.waiting: deque[Answer] = deque()
        self.running: list[Answer] = []
        #: Tokens of prompts that were found in the cache, of all requests so far.
        self.prompt_reused = 0

    @property
    def idle(self) -> bool:
        """There is no request, or all of them wait for steps to be granted."""
        return all(one.pace.waits for one in (*self.running, *self.waiting))

    def add(self, answer: Answer) -> None:
        self.waiting.append(answer)

    # -- in and out

    def next(self) -> tuple[Answer, Slot] | None:
        """The next request that can run, if there is one: it does now, in this slot."""
        for answer in [one for one in self.waiting if not one.pace.waits]:
            if not self._has_place():
                return None
            if self._slots.gains_by_waiting(answer.text) >= _WORTH:
                continue
            while (slot := self._slot(answer)) is None:
                if not self._one_steps_aside():  # others run; there is room when they are done
                    return None
            self._slots.make_room()
            self.waiting.remove(answer)
            self.running.append(answer)
            self.prompt_reused += self._target.n_past(slot.seq)
            return answer, slot
        return None

    def _has_place(self) -> bool:
        return len(self.running) < self._most_running or self._one_steps_aside()

    def _slot(self, answer: Answer) -> Slot | None:
        fits = self._slots.fits(answer.text, spare=_SPARE * len(self.running))
        return self._slots.take(answer.text) if fits else None

    def drop_cancelled(self) -> None:
        for answer in [answer for answer in self.waiting if answer.cancelled]:
            self.waiting.remove(answer)
            answer.stop("cancelled")
        for answer in self.running:
            if answer.cancelled:
                answer.stop("cancelled")
                self._slots.release(answer.slot)
        self.drop_finished()

    def drop_finished(self) -> None:
        self.running = [answer for answer in self.running if not answer.over]

    def with_room(self, answers: list[Answer]) -> list[Answer]:
        """Those with a cell left for their pending token. The last to come makes room for the others and goes on when
        they are done, so that neighbours never change an answer; one that fills the cache alone ends."""
        while answers and not self._slots.make_room(_for_guesses(answers)):
            if self._one_steps_aside():
                continue
            *others, last = [one for one in self.running if not one.over]
            if others:
                self.running.remove(last)
                self.waiting.appendleft(last)
            else:
                last.stop("length")
            self._slots.release(last.slot)
            answers = [one for one in answers if one is not last]
        return answers

    def _one_steps_aside(self) -> bool:
        """An answer that waits for a grant, if there is one, lends its place to others. It comes in again when it may
        go on, and reads anew what of its text is no longer there."""
        aside = next((one for one in reversed(self.running) if not one.over and one.pace.waits), None)
        if aside is not None:
            self.running.remove(aside)
            self.waiting.appendleft(aside)
            self._slots.release(aside.slot)
        return aside is not None

    # -- what a pass is for

    @property
    def reading(self) -> list[Answer]:
        """Those whose prompt is not yet in the cache."""
        return [one for one in self.running if not (one.over or one.ready(self._target))]

    @property
    def ready(self) -> list[Answer]:
        return [one for one in self.running if not one.over and one.ready(self._target)]

    def rows_to_read(self, reading: Sequence[Answer], *, beside: bool) -> int:
        """Rows that a pass keeps for prompts, ``beside`` answers that are verified."""
        chunk = max(self._chunk // 2, 1) if beside else self._chunk
        return min(chunk, sum(self._unread(one) for one in reading))

    def pieces(self, reading: Sequence[Answer], rows: int, features: tuple[int, ...]) -> list[Piece]:
        """The next piece of each prompt, ``rows`` tokens in all; what a short one leaves goes to the others."""
        pieces: list[Piece] = []
        for left, answer in zip(range(len(reading), 0, -1), sorted(reading, key=self._unread), strict=True):
            size = min(max(rows // left, 0), self._unread(answer))
            if size:
                rows -= size
                read = self._target.n_past(answer.slot.seq)
                work = Work.prompt(answer.slot.seq, answer.slot.tokens[read : read + size], features)
                pieces.append(Piece(answer, work))
        return pieces

    def _unread(self, answer: Answer) -> int:
        return len(answer.slot.tokens) - 1 - self._target.n_past(answer.slot.seq)


def _for_guesses(answers: Sequence[Answer]) -> int:
    """Cells that their guesses may take: what nobody uses any more must not keep them small."""
    return sum(0 if one.request.spec.off else one.request.spec.nodes for one in answers)
