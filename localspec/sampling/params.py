"""Sampler options: names as llama.cpp spells them, and the check that refuses what makes no sense."""

from __future__ import annotations

import math
from collections.abc import Iterable

from localspec.errors import UsageError
from localspec.types import DEFAULT_SAMPLERS, SamplingParams

_ALIASES = {
    "top-k": "top_k",
    "top-p": "top_p",
    "nucleus": "top_p",
    "typical-p": "typ_p",
    "typical": "typ_p",
    "typ-p": "typ_p",
    "typ": "typ_p",
    "min-p": "min_p",
    "temp": "temperature",
    "top-n-sigma": "top_n_sigma",
}
_SEED_LIMIT = 1 << 64
# Scores are float32: sums with anything up to this stay finite.
_LARGEST = 1e9


def parse_samplers(text: str | Iterable[str]) -> tuple[str, ...]:
    """``"top_k;top-p;temp"`` (or the names one by one) → names as in `DEFAULT_SAMPLERS`, in the order given.

    Raises:
        UsageError: a name is unknown.
    """
    names = text.split(";") if isinstance(text, str) else text
    return tuple(_canonical(name.strip()) for name in names if name.strip())


def _canonical(name: str) -> str:
    known = _ALIASES.get(name.lower(), name.lower())
    if known not in DEFAULT_SAMPLERS:
        raise UsageError(f"unknown sampler {name!r}", hint=f"Known are {', '.join(DEFAULT_SAMPLERS)}.")
    return known


def check(params: SamplingParams, *, n_vocab: int | None = None) -> None:
    """Refuses options that make no sense; ``n_vocab`` adds the check of ``logit_bias`` ids.

    Raises:
        UsageError: naming the option.
    """
    for name in params.samplers:
        if _canonical(name) != name:
            raise UsageError(f"sampler {name!r} is spelt {_canonical(name)!r} here", hint="Use that name.")
    _within("temperature", params.temperature, -_LARGEST, _LARGEST)
    _within("top_p", params.top_p, 0, _LARGEST)
    _within("typical_p", params.typical_p, 0, _LARGEST)
    _within("min_p", params.min_p, 0, 1)
    _within("repeat_penalty", params.repeat_penalty, 1e-6, 1e6)
    _within("frequency_penalty", params.frequency_penalty, -_LARGEST, _LARGEST)
    _within("presence_penalty", params.presence_penalty, -_LARGEST, _LARGEST)
    _at_least("repeat_last_n", params.repeat_last_n, -1)
    _at_least("min_tokens", params.min_tokens, 0)
    if params.seed is not None and not 0 <= params.seed < _SEED_LIMIT:
        raise UsageError(f"seed {params.seed} is not in 0 … 2^64 - 1", hint="Leave it out for a random one.")
    for token, bias in params.logit_bias:
        if token < 0 or (n_vocab is not None and token >= n_vocab):
            size = "" if n_vocab is None else f" of {n_vocab} tokens"
            raise UsageError(
                f"logit_bias names token {token}, which is not in the vocabulary{size}",
                hint="Look the id up with the tokenize command.",
            )
        if bias != -math.inf:
            _within(f"logit_bias of token {token}", bias, -_LARGEST, _LARGEST)


def _within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:  # false for NaN too
        raise UsageError(f"{name} is {value:g}", hint=f"It must be a number from {low:g} to {high:g}.")


def _at_least(name: str, value: int, low: int) -> None:
    if value < low:
        raise UsageError(f"{name} is {value}", hint=f"It must be {low} or more.")
