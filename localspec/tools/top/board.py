"""From readings to rates: what is shown of a server, one look after the other."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from localspec.tools.top.reading import Reading, Slot

#: After so many seconds a rate has forgotten two thirds of what it was.
_MEMORY_S = 5.0
#: Looks back that a curve has.
HISTORY = 240


class Rate:
    """A smoothed rate: an exponentially weighted mean, by time and not by looks."""

    def __init__(self, memory_s: float = _MEMORY_S) -> None:
        self._memory_s = memory_s
        self.value: float | None = None
        self.peak = 0.0

    def add(self, count: float, seconds: float) -> None:
        """So much came in so many seconds."""
        if seconds <= 0:
            return
        now, fresh = count / seconds, 1 - math.exp(-seconds / self._memory_s)
        self.value = now if self.value is None else self.value + fresh * (now - self.value)
        self.peak = max(self.peak, self.value)


@dataclass(frozen=True, slots=True)
class Guesses:
    """How guesses fared since the server runs, and lately; as llama.cpp counts: accepted / drafted, length 1 +
    accepted / steps with guesses. ``by_depth``: the share of steps in which so deep a guess was accepted."""

    drafted: int
    accepted: int
    acceptance: float | None
    lately: float | None
    mean_length: float | None
    by_depth: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class View:
    """What is shown. Rates are tokens a second, ``None`` before there are two looks; ``curve`` are those of the
    answers, the newest last; ``mean`` counts only while it answers. ``fault``: why there is no newer reading."""

    url: str
    ready: bool = False
    model: str = ""
    build: str = ""
    speed: float | None = None
    peak: float = 0.0
    mean: float | None = None
    reading: float | None = None
    tokens: int | None = None
    reused: int | None = None
    busy: int | None = None
    waiting: int | None = None
    guesses: Guesses | None = None
    slots: tuple[Slot, ...] | None = None
    missing: tuple[str, ...] = ()
    curve: tuple[float, ...] = field(default=())
    fault: str = ""

    def record(self) -> dict[str, Any]:
        """As one JSON object."""
        guesses = self.guesses
        return {
            "url": self.url,
            "state": "unreachable" if self.fault else "ready" if self.ready else "loading",
            "model": self.model or None,
            "build": self.build or None,
            "tokens_per_second": self.speed,
            "tokens_per_second_peak": self.peak,
            "tokens_per_second_mean": self.mean,
            "prompt_tokens_per_second": self.reading,
            "tokens_predicted": self.tokens,
            "prompt_tokens_cached": self.reused,
            "requests_processing": self.busy,
            "requests_deferred": self.waiting,
            "draft_n": None if guesses is None else guesses.drafted,
            "draft_n_accepted": None if guesses is None else guesses.accepted,
            "acceptance": None if guesses is None else guesses.acceptance,
            "acceptance_lately": None if guesses is None else guesses.lately,
            "mean_accepted_length": None if guesses is None else guesses.mean_length,
            "accepted_per_position": None if guesses is None else list(guesses.by_depth),
            "slots": None if self.slots is None else [_slot(one) for one in self.slots],
            "missing": list(self.missing),
        }


def _slot(slot: Slot) -> dict[str, Any]:
    return {
        "id": slot.id,
        "id_task": slot.task,
        "is_processing": slot.busy,
        "n_ctx": slot.n_ctx,
        "n_prompt_tokens": slot.cached,
        "n_decoded": slot.decoded,
        "speculative": slot.speculative,
    }


class Board:
    """Remembers what rates need of earlier readings."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._before: Reading | None = None
        self._speed, self._reading = Rate(), Rate()
        self._drafted, self._accepted = Rate(), Rate()
        self._curve: deque[float] = deque(maxlen=HISTORY)
        self.view = View(url)

    def take(self, now: Reading) -> View:
        """The next reading; what went backwards (the server was started anew) counts as nothing."""
        before = self._before
        if before is not None and now.ready:
            seconds = now.at - before.at
            self._speed.add(_answered(before, now), seconds)
            self._reading.add(_grown(before, now, "prompt_tokens_total"), seconds)
            self._drafted.add(_grown(before, now, _DRAFTED), seconds)
            self._accepted.add(_grown(before, now, _ACCEPTED), seconds)
            self._curve.append(self._speed.value or 0.0)
        self._before = now if now.ready else None
        self.view = View(
            url=self._url,
            ready=now.ready,
            model=now.model,
            build=now.build,
            speed=self._speed.value,
            peak=self._speed.peak,
            mean=_mean(now),
            reading=self._reading.value if now.metrics is not None else None,
            tokens=_whole(now.metric(_TOKENS)),
            reused=_whole(now.metric("prompt_tokens_cached_total")),
            busy=_busy(now),
            waiting=_whole(now.metric("requests_deferred")),
            guesses=self._guesses(now),
            slots=now.slots,
            missing=now.missing,
            curve=tuple(self._curve),
        )
        return self.view

    def lost(self, why: str) -> View:
        """The server did not answer: what was known stays, with the reason."""
        self._before = None
        known = self.view
        self.view = View(self._url, model=known.model, build=known.build, curve=known.curve, fault=why)
        return self.view

    def _guesses(self, now: Reading) -> Guesses | None:
        """``None`` where nobody counts, or nothing was ever drafted."""
        drafted, accepted, steps = (now.metric(name) for name in (_DRAFTED, _ACCEPTED, _STEPS))
        if not drafted or accepted is None:
            return None
        return Guesses(
            drafted=int(drafted),
            accepted=int(accepted),
            acceptance=accepted / drafted,
            lately=self._accepted.value / self._drafted.value if self._accepted.value and self._drafted.value else None,
            mean_length=1 + accepted / steps if steps else None,
            by_depth=tuple(one / steps for one in now.accepted_at) if steps else (),
        )


_DRAFTED, _ACCEPTED = "spec_decode_num_draft_tokens_total", "spec_decode_num_accepted_tokens_total"
_STEPS, _TOKENS = "spec_decode_num_drafts_total", "tokens_predicted_total"
#: Counters are written in six digits.
_DIGITS = 1_000_000


def _answered(before: Reading, now: Reading) -> float:
    """Tokens that came between two readings. Slots tell those of answers that run, the counter those of answers that
    are over; from a million on it has six digits only, and slots alone have to do."""
    if before.slots is None or now.slots is None:
        return _grown(before, now, _TOKENS)
    totals = [one.metric(_TOKENS) for one in (before, now)]
    if all(total is not None and total < _DIGITS for total in totals):
        one, other = ((reading.metric(_TOKENS) or 0.0) + _running(reading) for reading in (before, now))
        return max(other - one, 0.0)
    known = {slot.id: slot for slot in before.slots}
    return sum(_more(known.get(slot.id), slot) for slot in now.slots)


def _running(reading: Reading) -> int:
    return sum(slot.decoded for slot in reading.slots or () if slot.busy)


def _more(before: Slot | None, now: Slot) -> int:
    same = before is not None and before.task == now.task
    return max(now.decoded - (before.decoded if before is not None and same else 0), 0)


def _grown(before: Reading, now: Reading, name: str) -> float:
    one, other = before.metric(name), now.metric(name)
    return max(other - one, 0.0) if one is not None and other is not None else 0.0


def _mean(now: Reading) -> float | None:
    tokens, seconds = now.metric(_TOKENS), now.metric("tokens_predicted_seconds_total")
    return tokens / seconds if tokens and seconds else None


def _busy(now: Reading) -> int | None:
    told = _whole(now.metric("requests_processing"))
    return sum(slot.busy for slot in now.slots) if told is None and now.slots is not None else told


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
