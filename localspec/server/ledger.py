"""What was done for all who asked: the numbers behind ``/metrics`` and ``/slots``."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from localspec.talk.totals import Totals
from localspec.types import Event, Failed, Finished, Notice, Standing, Started, Tokens

#: Steps whose time a token is remembered, for quantiles of late.
_STEPS = 4096
#: Answers whose length is remembered.
_ANSWERS = 64


@dataclass(frozen=True, slots=True)
class Slot:
    """A sequence of the engine: the answer that it works on or worked on last."""

    number: int
    task: int = -1
    busy: bool = False
    prompt_n: int = 0
    cache_n: int = 0
    decoded: int = 0
    speculative: bool = True


@dataclass(frozen=True, slots=True)
class Reading:
    """All of it at one moment. ``token_s`` are the seconds that tokens took lately, in order of size; ``standings`` are
    the last words about drafters."""

    totals: Totals
    slots: tuple[Slot, ...]
    waiting: int
    ends: Counter[str]
    prompts: int
    hits: int
    longest: int
    steps: int
    busy_steps: int
    token_n: int
    token_s: tuple[float, ...] = field(default=(), repr=False)
    token_sum_s: float = 0.0
    standings: tuple[Standing, ...] = ()
    mean_answer_s: float | None = None
    refused: int = 0
    restarts: int = 0

    @property
    def running(self) -> int:
        return sum(slot.busy for slot in self.slots)

    def quantile(self, share: float) -> float | None:
        """Seconds a token, that so large a share of them stayed below."""
        if not self.token_s:
            return None
        return self.token_s[min(int(share * len(self.token_s)), len(self.token_s) - 1)]


@dataclass(frozen=True, slots=True)
class _Asked:
    """An answer that waits or runs. ``slot``: the one it is to be shown in, -1 for any."""

    since: float
    speculative: bool
    slot: int


class Ledger:
    """Takes the events of all answers, from any thread.

    Args:
        sequences: of the engine.
    """

    def __init__(self, sequences: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.Lock()
        self._clock = clock
        self._totals = Totals()
        self._slots = [Slot(number) for number in range(sequences)]
        self._asked: dict[int, _Asked] = {}
        self._slot_of: dict[int, int] = {}
        self._ends: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._longest = 0
        self._token_s: deque[float] = deque(maxlen=_STEPS)
        self._token_sum_s = 0.0
        self._standings: dict[str, Standing] = {}
        self._answer_s: deque[float] = deque(maxlen=_ANSWERS)
        self._last = 0

    def ask(self, *, speculative: bool, slot: int = -1) -> int:
        """An answer is asked for; its number.

        Args:
            slot: the one it is to be shown in, if that is free; numbers beyond the last begin anew, -1 is any.
        """
        with self._lock:
            self._last += 1
            self._asked[self._last] = _Asked(self._clock(), speculative, slot)
            return self._last

    def refuse(self) -> None:
        """There was no place."""
        with self._lock:
            self._counts["refused"] += 1

    def restart(self) -> None:
        """The engine is started anew."""
        with self._lock:
            self._counts["restarts"] += 1

    def take(self, number: int, event: Event) -> None:
        """The next event of an answer."""
        with self._lock:
            match event:
                case Started():
                    self._start(number, event)
                case Tokens():
                    self._count(number, event)
                case Notice(about=Standing() as standing):
                    self._standings[standing.drafter] = standing
                case Finished() | Failed():
                    self._end(number, event)

    def _start(self, number: int, event: Started) -> None:
        # Answers tell of themselves, each in its own time: where no slot is free, the oldest one's answer is over, and
        # the word of that is on its way.
        asked = self._asked[number]
        wanted = asked.slot % len(self._slots) if asked.slot >= 0 else -1
        at = min(self._slots, key=lambda slot: (slot.busy, not slot.busy and slot.number != wanted, slot.task)).number
        self._slot_of[number] = at
        self._slots[at] = Slot(at, number, True, event.prompt_n, event.cache_n, 0, asked.speculative)
        self._counts["prompts"] += 1
        self._counts["hits"] += event.cache_n > 0

    def _count(self, number: int, event: Tokens) -> None:
        slot = self._slots[self._slot_of[number]]
        if slot.task == number:
            self._slots[slot.number] = replace(slot, decoded=slot.decoded + len(event.tokens))
        step = event.step
        if step is None:
            return
        self._counts["steps"] += 1
        self._counts["busy"] += sum(one.busy for one in self._slots)
        if step.emitted > 0:
            seconds = step.t_draft + step.t_verify + step.t_host
            self._token_s.append(seconds / step.emitted)
            self._token_sum_s += seconds
            self._counts["tokens"] += step.emitted

    def _end(self, number: int, event: Finished | Failed) -> None:
        began = self._asked.pop(number).since
        self._ends[event.reason if isinstance(event, Finished) else "error"] += 1
        at = self._slot_of.pop(number, None)
        if at is None:  # it never came to its turn
            return
        if self._slots[at].task == number:
            self._slots[at] = replace(self._slots[at], busy=False)
        self._answer_s.append(self._clock() - began)
        if isinstance(event, Finished):
            self._longest = max(self._longest, event.timings.prompt_n + len(event.ids))
            self._totals = self._totals.plus(event)

    def read(self) -> Reading:
        with self._lock:
            counts, lengths = self._counts, self._answer_s
            return Reading(
                totals=self._totals,
                slots=tuple(self._slots),
                waiting=len(self._asked) - len(self._slot_of),
                ends=Counter(self._ends),
                prompts=counts["prompts"],
                hits=counts["hits"],
                longest=self._longest,
                steps=counts["steps"],
                busy_steps=counts["busy"],
                token_n=counts["tokens"],
                token_s=tuple(sorted(self._token_s)),
                token_sum_s=self._token_sum_s,
                standings=tuple(self._standings.values()),
                mean_answer_s=sum(lengths) / len(lengths) if lengths else None,
                refused=counts["refused"],
                restarts=counts["restarts"],
            )
