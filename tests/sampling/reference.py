"""The sampler chain once more, slow and plain: loops over a dict from token to logit."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from localspec.types import SamplingParams

Scores = dict[int, float]


def probabilities(scores: Scores) -> Scores:
    peak = max(scores.values())
    weights = {token: math.exp(x - peak) for token, x in scores.items()}
    total = math.fsum(weights.values())
    return {token: w / total for token, w in weights.items()}


def prefix(scores: Scores, order: Sequence[int], p: float, *, strict: bool) -> Scores:
    mass, total, kept = probabilities(scores), 0.0, {}
    for token in order:
        kept[token] = scores[token]
        total += mass[token]
        if total > p if strict else total >= p:
            break
    return kept


def apply(name: str, scores: Scores, params: SamplingParams, window: Sequence[int]) -> Scores:
    best_first = sorted(scores, key=lambda token: (-scores[token], token))
    if name == "penalties":
        out = dict(scores)
        for token in set(window) & set(scores):
            x, count = scores[token], window.count(token)
            x = x / params.repeat_penalty if x > 0 else x * params.repeat_penalty
            out[token] = x - count * params.frequency_penalty - params.presence_penalty
        return out
    if name == "top_k" and params.top_k > 0:
        return {token: scores[token] for token in best_first[: params.top_k]}
    if name == "top_p" and params.top_p < 1:
        return prefix(scores, best_first, params.top_p, strict=False)
    if name == "min_p" and params.min_p > 0:
        bound = scores[best_first[0]] + math.log(params.min_p)
        return {token: x for token, x in scores.items() if x >= bound}
    if name == "typ_p" and params.typical_p < 1:
        mass = probabilities(scores)
        entropy = math.fsum(-m * math.log(m) for m in mass.values())
        order = sorted(scores, key=lambda token: (abs(-math.log(mass[token]) - entropy), token))
        return prefix(scores, order, params.typical_p, strict=True)
    if name == "temperature" and params.temperature <= 0:
        return {best_first[0]: 0.0}
    if name == "temperature":
        return {token: x / params.temperature for token, x in scores.items()}
    return scores


def law(
    row: NDArray[np.float32],
    params: SamplingParams,
    *,
    prompt: Sequence[int],
    output: Sequence[int],
    end_tokens: Collection[int],
    n_ctx: int,
) -> Scores:
    """Token → probability after ``prompt`` and ``output``."""
    scores = dict(enumerate(row.tolist()))
    for token, bias in params.logit_bias:
        scores[token] += bias
    if params.ignore_eos or len(output) < params.min_tokens:
        scores.update(dict.fromkeys(end_tokens, -math.inf))
    scores = {token: x for token, x in scores.items() if x > -math.inf}
    size = n_ctx if params.repeat_last_n < 0 else params.repeat_last_n
    text = [*prompt, *output]
    for name in params.samplers:
        scores = apply(name, scores, params, text[-size:] if size else [])
    if params.temperature <= 0:
        scores = apply("temperature", scores, params, ())
    return probabilities(scores)
