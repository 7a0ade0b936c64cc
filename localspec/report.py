"""An answer as data and as one line: the names every front end uses for the same numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from localspec.types import EngineInfo, Finished, Placement, SpecStats, StepStats, Timings, TokenInfo, TreeTrace


def timings_record(timings: Timings, stats: SpecStats) -> dict[str, Any]:
    """llama.cpp's ``timings`` object, with ``draft_n`` and ``draft_n_accepted`` where something was drafted."""
    computed = timings.prompt_n - timings.cache_n
    record: dict[str, Any] = {
        "cache_n": timings.cache_n,
        "prompt_n": computed,
        "prompt_ms": _ms(timings.prompt_s),
        "prompt_per_token_ms": _ms(timings.prompt_s / computed) if computed else None,
        "prompt_per_second": _ratio(computed, timings.prompt_s),
        "predicted_n": timings.predicted_n,
        "predicted_ms": _ms(timings.predicted_s),
        "predicted_per_token_ms": _ms(1 / timings.tokens_per_second) if timings.tokens_per_second else None,
        "predicted_per_second": timings.tokens_per_second,
        "ttft_ms": _ms(timings.ttft_s),
    }
    if stats.draft_n:
        record |= {"draft_n": stats.draft_n, "draft_n_accepted": stats.accepted}
    return record


def speculation_record(stats: SpecStats) -> dict[str, Any]:
    """Statistics of speculation; rates are ``None`` before there is anything to divide by."""
    return {
        "steps": stats.steps,
        "drafted_steps": stats.drafted_steps,
        "draft_n": stats.draft_n,
        "draft_n_accepted": stats.accepted,
        "tested": stats.tested,
        "acceptance": stats.acceptance,
        "alpha": stats.alpha,
        "mean_accepted_length": stats.mean_length,
        "break_even_length": stats.break_even,
        "tokens_per_step": stats.tokens_per_step,
        "accepted_per_position": list(stats.accepted_at),
        "tested_per_position": list(stats.tested_at),
        "accepted_lengths": list(stats.lengths),
        "by_drafter": {one.name: {"draft_n": one.draft_n, "draft_n_accepted": one.accepted} for one in stats.by_source},
        "draft_ms": _ms(stats.t_draft),
        "verify_ms": _ms(stats.t_verify),
        "host_ms": _ms(stats.t_host),
        "speedup": stats.speedup,
        "saved_ms": _ms(stats.t_plain - stats.t_judged) if stats.speedup else None,
    }


def answer_record(
    finished: Finished, text: str, tokens: Sequence[TokenInfo], *, info: EngineInfo, seed: int, logprobs: bool
) -> dict[str, Any]:
    """One answer of one engine as one JSON object; ``tokens`` are ``None`` where a server keeps them to itself."""
    record: dict[str, Any] = {
        "text": text,
        "finish_reason": finished.reason,
        "stop": finished.stop,
        "model": info.target,
        "seed": seed,
        "usage": {
            "prompt_tokens": finished.timings.prompt_n,
            "completion_tokens": finished.n,
            "total_tokens": finished.timings.prompt_n + finished.n,
        },
        "tokens": None if info.server else list(finished.ids),
        "timings": timings_record(finished.timings, finished.stats),
        "speculation": speculation_record(finished.stats),
    }
    if info.exact is not None:
        record["exact"] = {"rows": info.exact.rows, "price": info.exact.price}
    if logprobs:
        record["logprobs"] = [logprob_record(token) for token in tokens]
    return record


def logprob_record(token: TokenInfo) -> dict[str, Any]:
    """The target's log-probabilities at one position, before temperature and filters."""
    return {
        "id": token.id,
        "bytes": list(token.piece),
        "logprob": token.logprob,
        "top_logprobs": [{"id": one.id, "bytes": list(one.piece), "logprob": one.logprob} for one in token.top],
    }


def step_record(step: StepStats, tokens: Sequence[TokenInfo], tree: TreeTrace | None) -> dict[str, Any]:
    """One verify step: what was guessed, what of it held, what came of it and who guessed that."""
    return {
        "draft_n": step.draft_n,
        "tested": step.tested,
        "draft_n_accepted": step.accepted,
        "emitted": step.emitted,
        "cut": step.cut,
        "draft_ms": _ms(step.t_draft),
        "verify_ms": _ms(step.t_verify),
        "host_ms": _ms(step.t_host),
        "plain_ms": None if step.t_plain is None else _ms(step.t_plain),
        "tokens": [_provenance_record(token) for token in tokens],
        "tree": None if tree is None else _tree_record(tree),
    }


def _provenance_record(token: TokenInfo) -> dict[str, Any]:
    guess = {"drafter": token.source or None, "depth": token.depth, "draft_p": token.draft_p}
    return {**logprob_record(token), **guess, "target_p": token.target_p}


def _tree_record(tree: TreeTrace) -> dict[str, Any]:
    """Place by place the nodes of a tree; node 0 is the pending token, ``path`` are the nodes that held."""
    return {
        "ids": list(tree.tokens),
        "bytes": [list(piece) for piece in tree.pieces],
        "parents": list(tree.parents),
        "drafters": [name or None for name in tree.sources],
        "draft_p": list(tree.scores),
        "target_p": list(tree.target_p),
        "path": list(tree.path),
    }


def finite(value: Any) -> Any:
    """The same data with ``None`` for what JSON has no number for."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def status_line(finished: Finished, *, limit: int = -1, guesses: bool = True, alone: Sequence[str] = ()) -> str:
    """The parts of `status_parts` with dots between them."""
    return " · ".join(status_parts(finished, limit=limit, guesses=guesses, alone=alone))


def status_parts(finished: Finished, *, limit: int = -1, guesses: bool = True, alone: Sequence[str] = ()) -> list[str]:
    """``142 tok · 61 tok/s · α 0.78 · accepted 71 % (210/294) · length 3.9``, and why it ended if not by itself.

    ``limit`` is the request's ``max_tokens``; ``guesses`` says whether anything was allowed to be guessed; ``alone``
    are drafters that might guess and are not asked, because they do not pay.
    """
    timings, stats = finished.timings, finished.stats
    parts = [f"{finished.n} tok"]
    if timings.tokens_per_second is not None:
        parts.append(speed(timings.tokens_per_second))
    if stats.acceptance is None:
        # A server that counts no steps does not tell whether it guesses.
        parts += [("nothing drafted" if guesses else "speculation off")] if finished.ids or stats.steps else []
    else:
        parts += [
            *([] if stats.alpha is None else [f"α {stats.alpha:.2f}"]),
            f"accepted {stats.acceptance:.0%} ({stats.accepted}/{stats.draft_n})".replace("%", " %"),
            *([] if stats.mean_length is None else [f"length {stats.mean_length:.1f}"]),
        ]
        if stats.speedup is not None and 10 * stats.drafted_steps >= stats.steps:  # else it is the machine's noise
            parts.append(f"{stats.speedup:.2f}× plain")
    parts += _sources(stats, alone)
    if timings.cache_n:
        parts.append(f"{timings.cache_n}/{timings.prompt_n} prompt tokens reused")
    if finished.reason != "stop":
        full = "context full" if limit < 0 or finished.n < limit else f"cut at -n {limit}"
        parts.append({"length": full, "cancelled": "stopped"}.get(finished.reason, finished.reason))
    return parts


def _sources(stats: SpecStats, alone: Sequence[str]) -> list[str]:
    """Who guessed and who is left alone; nothing where all that are loaded are in use."""
    if not alone:
        return []
    asked = [one.name for one in stats.by_source if one.draft_n]
    used, tried = ([name for name in asked if (name in alone) == out] for out in (False, True))
    parts = [f"from {', '.join(used)}"] if used else []
    if tried:
        parts.append(f"{', '.join(tried)} tried and left alone")
    if idle := [name for name in alone if name not in tried]:
        parts.append(f"{', '.join(idle)} left alone")
    return parts


def load_lines(info: EngineInfo) -> list[str]:
    """What reached the target and the draft model, and where they lie: for ``--dump-load``."""
    lines: list[str] = []
    for load in info.loads:
        rows = [*load.settings, *((f"on {place.device}", placement_text(place)) for place in load.placement)]
        width = max((len(name) for name, _ in rows), default=0)
        lines += [f"{load.role}: {load.path}", *(f"  {name:<{width}}  {text}" for name, text in rows)]
    return lines


def placement_text(place: Placement) -> str:
    """``21 layers, 86.6 MB weights, 8.3 MB cache, 9.4 MB buffers``"""
    sizes = {"weights": place.bytes_weights, "cache": place.bytes_cache}
    if place.bytes_buffers:
        sizes["buffers"] = place.bytes_buffers
    return ", ".join([f"{place.layers} layers", *(f"{size / 1e6:.1f} MB {name}" for name, size in sizes.items())])


def speed(rate: float) -> str:
    """Three digits, and all of a larger number."""
    return f"{rate:.3g} tok/s" if rate < 1000 else f"{rate:.0f} tok/s"


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)


def _ratio(n: float, seconds: float) -> float | None:
    return n / seconds if seconds > 0 else None
