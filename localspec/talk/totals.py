"""Statistics of a session: sums over its answers, and what /stats says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from localspec.report import speed
from localspec.text.layout import flow, table
from localspec.types import Exact, Finished, SourceStats, SpecStats


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
            tokens=self.tokens + finished.n,
            prompt_n=self.prompt_n + timings.prompt_n,
            cache_n=self.cache_n + timings.cache_n,
            prompt_s=self.prompt_s + timings.prompt_s,
            timed_tokens=self.timed_tokens + (timings.timed_n if timed else 0),
            predicted_s=self.predicted_s + (timings.predicted_s if timed else 0.0),
            stats=self.stats + finished.stats,
        )

    @property
    def tokens_per_second(self) -> float | None:
        """Over all answers, each without its first step."""
        return self.timed_tokens / self.predicted_s if self.predicted_s > 0 else None


def statistics(
    last: Finished | None,
    seed: int | None,
    totals: Totals,
    standings: Sequence[tuple[str, str]],
    width: int,
    exact: Exact | None = None,
) -> str:
    """What /stats shows: the last answer and its seed, the session, what ``exact`` costs, and how each drafter
    stands."""
    drafters = [] if exact is None else flow("exact     ", exact.parts, width)
    drafters += ["drafters", *table(standings, width, left=16, indent=2)] if standings else []
    if last is None:
        return "\n".join(["nothing was answered yet", *drafters])
    timings = last.timings
    answer = [f"{last.n} tok", *_speed(timings.tokens_per_second), f"first after {timings.ttft_s:.2f} s"]
    answer += [] if seed is None else [f"seed {seed}"]
    prompt = _prompt(timings.prompt_n, timings.cache_n, timings.prompt_s)
    parts = ["last answer", *_rows(answer, prompt, last.stats, width)]
    if totals.answers > 1:
        answers = [f"{totals.tokens} tok", *_speed(totals.tokens_per_second)]
        prompts = _prompt(totals.prompt_n, totals.cache_n, totals.prompt_s)
        parts += [f"session of {totals.answers} answers", *_rows(answers, prompts, totals.stats, width)]
    return "\n".join(parts + drafters)


def _prompt(tokens: int, reused: int, seconds: float) -> list[str]:
    return [f"{tokens} tok", f"{reused} reused", f"read in {seconds:.2f} s"]


def _speed(rate: float | None) -> list[str]:
    return [] if rate is None else [speed(rate)]


def _rows(answer: list[str], prompt: list[str], stats: SpecStats, width: int) -> list[str]:
    rows = [("answer", answer), ("prompt", prompt)]
    if stats.acceptance is None:
        rows.append(("guesses", ["nothing was drafted" if stats.steps else "the server tells nothing of them"]))
    else:
        accepted = f"accepted {share(stats.accepted, stats.draft_n)} ({stats.accepted}/{stats.draft_n})"
        alpha = [] if stats.alpha is None else [f"α {stats.alpha:.2f}"]
        length = [] if stats.mean_length is None else [f"length {stats.mean_length:.1f}"]
        rows += [
            ("guesses", [*alpha, accepted, *length]),
            ("by depth", _depths(stats)),
            ("by source", [_source(one) for one in stats.by_source]),
        ]
    if stats.speedup is not None:
        rows.append(("speed-up", [f"{stats.speedup:.2f}× plain decoding, as measured"]))
    if stats.tokens_per_step is not None:
        guessed = f"{stats.steps}, {stats.drafted_steps} with guesses"
        rows.append(("steps", [guessed, f"{stats.tokens_per_step:.2f} tok each"]))
    if stats.steps:
        times = {"draft": stats.t_draft, "verify": stats.t_verify, "host": stats.t_host}
        rows.append(("time", [f"{name} {seconds:.2f} s" for name, seconds in times.items()]))
    return [line for name, parts in rows if parts for line in flow(f"  {name:<10}", parts, width)]


def _depths(stats: SpecStats) -> list[str]:
    return [
        f"{depth}: {share(accepted, tested)}"
        for depth, (accepted, tested) in enumerate(zip(stats.accepted_at, stats.tested_at, strict=False), start=1)
        if tested
    ]


def _source(one: SourceStats) -> str:
    return f"{one.name} {share(one.accepted, one.draft_n)} ({one.accepted}/{one.draft_n})"


def share(part: float, whole: float) -> str:
    """``71 %``, or a dash where there is nothing to divide by."""
    return f"{part / whole:.0%}".replace("%", " %") if whole else "-"
