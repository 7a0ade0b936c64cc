"""What servers tell of an answer, as the statistics that engines here give: llama.cpp's ``timings``, OpenAI's
``usage``, and the ``speculation`` of `localspec serve`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from localspec.types import SourceStats, SpecStats, Timings

Told = Mapping[str, Any]


def count(found: Told, name: str) -> int:
    """A number of things; 0 where there is none."""
    value = found.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def number(found: Told, name: str) -> float:
    """Any number that is not negative; 0 where there is none."""
    value = found.get(name)
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
    return float(value) if good and value is not None else 0.0


def part(found: Told, name: str) -> Told:
    """An object within another; an empty one where there is none."""
    inner = found.get(name)
    return inner if isinstance(inner, dict) else {}


def drafted(timings: Told) -> SpecStats | None:
    """How many guesses were made and how many held, where the server says so."""
    drafts = count(timings, "draft_n")
    return SpecStats(draft_n=drafts, accepted=count(timings, "draft_n_accepted")) if drafts else None


def statistics(speculation: Told, timings: Told) -> SpecStats:
    """All that is told of guesses. Without `localspec serve` that is two counts at most."""
    if not count(speculation, "steps"):
        return drafted(timings) or SpecStats()
    plain, judged = _judged(speculation)
    return SpecStats(
        steps=count(speculation, "steps"),
        drafted_steps=count(speculation, "drafted_steps"),
        draft_n=count(speculation, "draft_n"),
        tested=count(speculation, "tested"),
        accepted=count(speculation, "draft_n_accepted"),
        emitted=count(timings, "predicted_n"),
        t_draft=number(speculation, "draft_ms") / 1000,
        t_verify=number(speculation, "verify_ms") / 1000,
        t_host=number(speculation, "host_ms") / 1000,
        t_plain=plain,
        t_judged=judged,
        accepted_at=_counts(speculation, "accepted_per_position"),
        tested_at=_counts(speculation, "tested_per_position"),
        lengths=_counts(speculation, "accepted_lengths"),
        by_source=tuple(_sources(part(speculation, "by_drafter"))),
    )


def _judged(speculation: Told) -> tuple[float, float]:
    """Seconds of plain decoding and of what was done, from their quotient and their difference."""
    speedup, saved = number(speculation, "speedup"), speculation.get("saved_ms")
    if not speedup or speedup == 1 or not isinstance(saved, int | float):
        return 0.0, 0.0
    judged = saved / 1000 / (speedup - 1)
    return (speedup * judged, judged) if judged > 0 else (0.0, 0.0)


def _counts(found: Told, name: str) -> tuple[int, ...]:
    items = found.get(name)
    good = isinstance(items, list) and all(isinstance(one, int) for one in items)
    return tuple(items) if good and items else ()


def _sources(found: Told) -> list[SourceStats]:
    records = {str(name): part(found, name) for name in found}
    return [SourceStats(name, count(one, "draft_n"), count(one, "draft_n_accepted")) for name, one in records.items()]


def usage_prompt(usage: Told) -> tuple[int, int]:
    """Tokens of the prompt, and how many of them were in the server's cache."""
    return count(usage, "prompt_tokens"), count(part(usage, "prompt_tokens_details"), "cached_tokens")


def clocked(usage: Told, timings: Told, seen: Timings) -> Timings:
    """The clock of an answer: the server's own where it has one, else as ``seen`` from here."""
    prompt_n, cache_n = usage_prompt(usage)
    if not count(timings, "predicted_n"):
        return Timings(
            prompt_n=prompt_n,
            cache_n=cache_n,
            prompt_s=seen.prompt_s,
            ttft_s=seen.ttft_s,
            predicted_n=count(usage, "completion_tokens") or seen.predicted_n,
            predicted_s=seen.predicted_s,
            first_n=seen.first_n,
        )
    cached, predicted_n = count(timings, "cache_n"), count(timings, "predicted_n")
    seconds = number(timings, "predicted_ms") / 1000
    timed = round(number(timings, "predicted_per_second") * seconds)
    return Timings(
        prompt_n=prompt_n or cached + count(timings, "prompt_n"),
        cache_n=cached,
        prompt_s=number(timings, "prompt_ms") / 1000,
        ttft_s=seen.ttft_s,
        predicted_n=predicted_n,
        predicted_s=seconds,
        first_n=max(predicted_n - timed, 0),
    )
