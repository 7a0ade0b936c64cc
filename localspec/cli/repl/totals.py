"""Statistics of a session: sums over its answers, and what /stats says."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import zip_longest

from localspec.report import speed
from localspec.types import Finished, SourceStats, SpecStats


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the answers so far; seconds and tokens."""

    answers: int = 0
    tokens: int = 0
    prompt_n: int = 0
    cache_n: int = 0
    prompt_s: float = 0.0
    timed_tokens: int = 0
    predicted_s: float = 0.0
    stats: SpecStats = field(default_factory=SpecStats)

    def plus(self, finished: Finished) -> Totals:
        timings = finished.timings
        timed = timings.tokens_per_second is not None
        return Totals(
            answers=self.answers + 1,
            tokens=self.tokens + len(finished.ids),
            prompt_n=self.prompt_n + timings.prompt_n,
            cache_n=self.cache_n + timings.cache_n,
            prompt_s=self.prompt_s + timings.prompt_s,
            timed_tokens=self.timed_tokens + (timings.predicted_n - 1 if timed else 0),
            predicted_s=self.predicted_s + (timings.predicted_s if timed else 0.0),
            stats=added(self.stats, finished.stats),
        )

    @property
    def tokens_per_second(self) -> float | None:
        """Over all answers, each without its first token."""
        return self.timed_tokens / self.predicted_s if self.predicted_s > 0 else None


def added(a: SpecStats, b: SpecStats) -> SpecStats:
    """Counts and seconds of both."""
    return SpecStats(
        steps=a.steps + b.steps,
        drafted_steps=a.drafted_steps + b.drafted_steps,
        draft_n=a.draft_n + b.draft_n,
        tested=a.tested + b.tested,
        accepted=a.accepted + b.accepted,
        emitted=a.emitted + b.emitted,
        cut=a.cut + b.cut,
        t_draft=a.t_draft + b.t_draft,
        t_verify=a.t_verify + b.t_verify,
        t_host=a.t_host + b.t_host,
        t_plain=a.t_plain + b.t_plain,
        t_judged=a.t_judged + b.t_judged,
        accepted_at=_each(a.accepted_at, b.accepted_at),
        tested_at=_each(a.tested_at, b.tested_at),
        lengths=_each(a.lengths, b.lengths),
        by_source=_sources(a.by_source, b.by_source),
    )


def _each(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(x + y for x, y in zip_longest(a, b, fillvalue=0))


def _sources(a: tuple[SourceStats, ...], b: tuple[SourceStats, ...]) -> tuple[SourceStats, ...]:
    sums: dict[str, tuple[int, int]] = {}
    for one in (*a, *b):
        drafted, accepted = sums.get(one.name, (0, 0))
        sums[one.name] = (drafted + one.draft_n, accepted + one.accepted)
    return tuple(SourceStats(name, *counts) for name, counts in sums.items())


def statistics(last: Finished | None, totals: Totals) -> str:
    """What /stats shows: the last answer, and the session."""
    if last is None:
        return "nothing was answered yet"
    timings = last.timings
    answer = [f"{len(last.ids)} tok", *_speed(timings.tokens_per_second), f"first after {timings.ttft_s:.2f} s"]
    prompt = _prompt(timings.prompt_n, timings.cache_n, timings.prompt_s)
    parts = ["last answer", *_rows(answer, prompt, last.stats)]
    if totals.answers > 1:
        answers = [f"{totals.tokens} tok", *_speed(totals.tokens_per_second)]
        prompts = _prompt(totals.prompt_n, totals.cache_n, totals.prompt_s)
        parts += [f"session of {totals.answers} answers", *_rows(answers, prompts, totals.stats)]
    return "\n".join(parts)


def _prompt(tokens: int, reused: int, seconds: float) -> list[str]:
    return [f"{tokens} tok", f"{reused} reused", f"read in {seconds:.2f} s"]


def _speed(rate: float | None) -> list[str]:
    return [] if rate is None else [speed(rate)]


def _rows(answer: list[str], prompt: list[str], stats: SpecStats) -> list[str]:
    rows = [("answer", answer), ("prompt", prompt)]
    if stats.alpha is None or stats.acceptance is None or stats.mean_length is None:
        rows.append(("guesses", ["nothing was drafted"]))
    else:
        accepted = f"accepted {_share(stats.accepted, stats.draft_n)} ({stats.accepted}/{stats.draft_n})"
        rows += [
            ("guesses", [f"α {stats.alpha:.2f}", accepted, f"length {stats.mean_length:.1f}"]),
            ("by depth", _depths(stats)),
            ("by source", [_source(one) for one in stats.by_source]),
        ]
    if stats.speedup is not None:
        rows.append(("speed-up", [f"{stats.speedup:.2f}× plain decoding, as measured"]))
    if stats.tokens_per_step is not None:
        guessed = f"{stats.steps}, {stats.drafted_steps} with guesses"
        rows.append(("steps", [guessed, f"{stats.tokens_per_step:.2f} tok each"]))
    times = {"draft": stats.t_draft, "verify": stats.t_verify, "host": stats.t_host}
    rows.append(("time", [f"{name} {seconds:.2f} s" for name, seconds in times.items()]))
    return [line for name, parts in rows if parts for line in _wrapped(f"  {name:<10}", parts)]


def _wrapped(head: str, parts: list[str]) -> list[str]:
    """A row of at most 80 columns, gone on with below where it is longer."""
    lines = [head]
    for part in parts:
        more = part if lines[-1].isspace() or lines[-1] == head else f" · {part}"
        if len(lines[-1] + more) > 80:
            lines.append(" " * len(head))
            more = part
        lines[-1] += more
    return lines


def _depths(stats: SpecStats) -> list[str]:
    return [
        f"{depth}: {_share(accepted, tested)}"
        for depth, (accepted, tested) in enumerate(zip(stats.accepted_at, stats.tested_at, strict=False), start=1)
        if tested
    ]


def _source(one: SourceStats) -> str:
    return f"{one.name} {_share(one.accepted, one.draft_n)} ({one.accepted}/{one.draft_n})"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}".replace("%", " %") if whole else "-"
