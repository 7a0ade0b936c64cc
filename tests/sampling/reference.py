"""The sampler chain once more, slow and plain: loops over a dict from token to logit."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Sequence
from dataclasses import replace

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


def repetitions(window: Sequence[int], allowed: int, breakers: Collection[tuple[int, ...]] = ()) -> dict[int, int]:
    """Token → length of the longest repetition of at least ``allowed`` tokens that it would go on with, by comparing
    every place of the window with its end."""
    n = len(window)
    ends = [
        [place + len(one) for one in breakers if tuple(window[place : place + len(one)]) == one]
        for place in range(n - 1, -1, -1)
    ]
    limit = n - next((max(found) for found in ends if found), 0)
    longest: dict[int, int] = {}
    for place in range(1, n):
        length = 0
        while length < min(place, limit) and window[place - 1 - length] == window[n - 1 - length]:
            length += 1
        token = window[place]
        if length >= max(allowed, longest.get(token, 0)) and (token,) not in breakers:
            longest[token] = length
    return longest


def dynamic(scores: Scores, params: SamplingParams) -> Scores:
    if len(scores) < 2:
        return scores
    entropy = math.fsum(-m * math.log(m) for m in probabilities(scores).values() if m > 0)
    middle = max(params.temperature, 0.0)
    low, high = max(middle - params.dynatemp_range, 0.0), middle + params.dynatemp_range
    t = low + (high - low) * (entropy / math.log(len(scores))) ** params.dynatemp_exponent
    return {token: x / t for token, x in scores.items()}


def apply(
    name: str,
    scores: Scores,
    params: SamplingParams,
    window: Sequence[int],
    breakers: Collection[tuple[int, ...]] = (),
    *,
    coin: bool = False,
) -> Scores:
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
        mass = {token: m for token, m in probabilities(scores).items() if m > 0}  # very cold: the others are out
        entropy = math.fsum(-m * math.log(m) for m in mass.values())
        order = sorted(mass, key=lambda token: (abs(-math.log(mass[token]) - entropy), token))
        return prefix(scores, order, params.typical_p, strict=True)
    if name == "dry" and params.dry_multiplier > 0:
        lengths = repetitions(window, params.dry_allowed_length, breakers)
        powers = {token: params.dry_base ** (n - params.dry_allowed_length) for token, n in lengths.items()}
        return {token: x - params.dry_multiplier * powers.get(token, 0) for token, x in scores.items()}
    if name == "top_n_sigma" and params.top_n_sigma > 0:
        bound = max(scores.values()) - params.top_n_sigma * statistics.pstdev(scores.values())
        return {token: x for token, x in scores.items() if x >= bound}
    if name == "xtc" and coin and params.xtc_threshold <= 0.5:
        mass = probabilities(scores)
        top = [token for token in best_first if mass[token] >= params.xtc_threshold]
        return {token: x for token, x in scores.items() if token not in top[:-1]}
    if name == "temperature" and params.dynatemp_range > 0:
        return dynamic(scores, params)
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
    breakers: Collection[tuple[int, ...]] = (),
    coin: bool | None = None,
) -> Scores:
    """Token → probability after ``prompt`` and ``output``. ``coin``: whether XTC is to happen; ``None``: whichever way
    it falls."""
    if coin is None and params.xtc_probability > 0:
        laws = [
            law(
                row,
                params,
                prompt=prompt,
                output=output,
                end_tokens=end_tokens,
                n_ctx=n_ctx,
                breakers=breakers,
                coin=falls,
            )
            for falls in (False, True)
        ]
        p = params.xtc_probability
        return {t: (1 - p) * laws[0].get(t, 0) + p * laws[1].get(t, 0) for t in {**laws[0], **laws[1]}}
    scores = dict(enumerate(row.tolist()))
    for token, bias in params.logit_bias:
        scores[token] += bias
    if params.ignore_eos or len(output) < params.min_tokens:
        scores.update(dict.fromkeys(end_tokens, -math.inf))
    scores = {token: x for token, x in scores.items() if x > -math.inf}
    text = [*prompt, *output]
    sizes = {"penalties": params.repeat_last_n, "dry": params.dry_penalty_last_n}
    for name in params.samplers:
        size = sizes.get(name, 0)
        window = text[-size:] if size > 0 else text[-n_ctx:] if size < 0 else []
        scores = apply(name, scores, params, window, breakers, coin=bool(coin))
    if params.temperature <= 0 and not (params.dynatemp_range > 0 and "temperature" in params.samplers):
        scores = apply("temperature", scores, replace(params, dynatemp_range=0), ())
    return probabilities(scores)
