"""Two looks at a server as lines of text and as data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from localspec.report import finite, speed
from localspec.text.layout import flow
from localspec.text.printable import one_line
from localspec.tools.top.reading import Counters, Reading, Slot
from localspec.types import SpecStats

_HEAD = 10


@dataclass(frozen=True, slots=True)
class View:
    """The newest look and the one before it, if there is one."""

    now: Reading
    before: Reading | None = None

    @property
    def recent(self) -> Counters | None:
        """Counts between the two looks. Servers count an answer when it ends."""
        if self.now.counters is None or self.before is None or self.before.counters is None:
            return None
        return self.now.counters.since(self.before.counters)

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens of all slots between the two looks / the time between them, answers that still run included."""
        if self.before is None or self.now.slots is None or self.before.slots is None or self.now.at <= self.before.at:
            return None
        old = {slot.number: slot for slot in self.before.slots}
        came = sum(_came(slot, old.get(slot.number)) for slot in self.now.slots)
        return came / (self.now.at - self.before.at)


def _came(slot: Slot, before: Slot | None) -> int:
    same = before is not None and before.task == slot.task
    return max(slot.decoded - before.decoded, 0) if before is not None and same else slot.decoded


def lines(view: View, url: str, width: int) -> list[str]:
    """At most ``width`` cells each, where words allow it."""
    now = view.now
    model = [one_line(now.model)] if now.model else []
    rows = flow("", [*model, one_line(url)], width)
    rows += _row("slots", _slots(now), width)
    rows += _row("speed", list(_speeds(view)), width)
    if now.counters is not None:
        rows += _row("guesses", _guesses(now.counters.stats), width)
        if view.recent is not None and view.recent.stats.draft_n:
            rows += _row("  lately", _guesses(view.recent.stats), width)
        rows += _row("by depth", _depths(now.counters.stats), width)
        rows += _row("tokens", _tokens(now.counters), width)
    for slot in now.slots or ():
        rows += _row(f"slot {slot.number}", _slot(slot), width)
    return rows + [line for note in now.notes for line in flow("note      ", [one_line(note)], width)]


def _row(name: str, parts: list[str], width: int) -> list[str]:
    return flow(f"{name:<{_HEAD}}", parts, width) if parts else []


def _slots(now: Reading) -> list[str]:
    if now.slots is None:
        return []
    waiting = [] if now.counters is None else [f"{now.counters.waiting} waiting"]
    return [f"{sum(slot.busy for slot in now.slots)} of {len(now.slots)} busy", *waiting]


def _speeds(view: View) -> Iterator[str]:
    if view.tokens_per_second is not None:
        yield f"now {speed(view.tokens_per_second)}"
    counters = view.now.counters
    if counters is not None and counters.predicted_s > 0:
        yield f"answers {speed(counters.predicted_n / counters.predicted_s)}"
    if counters is not None and counters.prompt_s > 0:
        yield f"prompts {speed(counters.prompt_n / counters.prompt_s)}"


def _guesses(stats: SpecStats) -> list[str]:
    if stats.acceptance is None:
        return ["nothing was drafted"]
    accepted = f"accepted {stats.acceptance:.0%} ({stats.accepted}/{stats.draft_n})".replace("%", " %")
    return [accepted] if stats.mean_length is None else [accepted, f"length {stats.mean_length:.1f}"]


def _depths(stats: SpecStats) -> list[str]:
    """Of all steps with guesses: servers do not tell how many guesses were tested at a depth."""
    if not stats.drafted_steps:
        return []
    shares = (f"{count / stats.drafted_steps:.0%}".replace("%", " %") for count in stats.accepted_at)
    return [f"{depth}: {share}" for depth, share in enumerate(shares, start=1)]


def _tokens(counters: Counters) -> list[str]:
    return [f"{counters.predicted_n} tok", f"{counters.prompt_n} of prompts", f"{counters.cache_n} reused"]


def _slot(slot: Slot) -> list[str]:
    if not slot.busy:
        return ["idle"]
    return [f"{slot.decoded} tok", f"context {slot.tokens}/{slot.n_ctx}"]


def record(view: View, url: str) -> dict[str, Any]:
    """One look as one JSON object; ``None`` for what is not told."""
    now = view.now
    counters = now.counters
    data: dict[str, Any] = finite(
        {
            "url": url,
            "model": now.model or None,
            "tokens_per_second": view.tokens_per_second,
            "slots": None if now.slots is None else [asdict(slot) for slot in now.slots],
            "counters": None if counters is None else _counted(counters),
            "lately": None if view.recent is None else _counted(view.recent),
            "notes": list(now.notes),
        }
    )
    return data


def _counted(counters: Counters) -> dict[str, Any]:
    stats = counters.stats
    return {
        "prompt_n": counters.prompt_n,
        "cache_n": counters.cache_n,
        "prompt_s": counters.prompt_s,
        "predicted_n": counters.predicted_n,
        "predicted_s": counters.predicted_s,
        "waiting": counters.waiting,
        "drafted_steps": stats.drafted_steps,
        "draft_n": stats.draft_n,
        "draft_n_accepted": stats.accepted,
        "acceptance": stats.acceptance,
        "mean_accepted_length": stats.mean_length,
        "accepted_per_position": list(stats.accepted_at),
    }
