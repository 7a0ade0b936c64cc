"""Sampler options: names as llama.cpp spells them, and the check that refuses what makes no sense."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from localspec.errors import UsageError
from localspec.types import DEFAULT_SAMPLERS, SamplingParams

SAMPLERS = (*DEFAULT_SAMPLERS, "adaptive_p")
_SPELLINGS = {
    **{name.replace("_", line): name for name in SAMPLERS for line in ("_", "-", "")},
    **dict.fromkeys(("typ", "typical", "typical-p"), "typ_p"),
    "nucleus": "top_p",
    "temp": "temperature",
}
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}
_LONGEST_BREAKER = 40  # bytes; llama.cpp cuts longer ones off
_SEED_LIMIT = 1 << 64
# Scores are float32: sums with anything up to this stay finite.
_LARGEST = 1e9


def parse_samplers(text: str | Iterable[str]) -> tuple[str, ...]:
    """``"top_k;top-p;temp"`` (or the names one by one) → names as in `SAMPLERS`, in the order given.

    Raises:
        UsageError: a name is unknown.
    """
    names = text.split(";") if isinstance(text, str) else text
    return tuple(_canonical(name.strip()) for name in names if name.strip())


def _canonical(name: str) -> str:
    known = _SPELLINGS.get(name.lower())
    if known is None:
        raise UsageError(f"unknown sampler {name!r}", hint=f"Known are {', '.join(SAMPLERS)}.")
    return known


def parse_breakers(texts: Iterable[str]) -> tuple[str, ...]:
    r"""Sequence breakers of DRY as they are given → as they stand in a text: \n, \r, \t and backslashes before quotes
    and backslashes are read; ``none`` takes back those before it.

    Raises:
        UsageError: one is empty or too long.
    """
    found: list[str] = []
    for text in texts:
        if text == "none":
            found.clear()
        else:
            found.append(re.sub(r"""\\([nrt"'\\])""", lambda match: _ESCAPED.get(match[1], match[1]), text))
            _check_breaker(found[-1])
    return tuple(found)


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
    _check_dry(params)
    _within("top_n_sigma", params.top_n_sigma, -_LARGEST, _LARGEST)
    _within("xtc_probability", params.xtc_probability, 0, 1)
    _within("xtc_threshold", params.xtc_threshold, 0, 1)
    _within("dynatemp_range", params.dynatemp_range, 0, _LARGEST)
    _within("dynatemp_exponent", params.dynatemp_exponent, 0, _LARGEST)
    if params.mirostat not in (0, 2):
        raise UsageError(f"mirostat {params.mirostat} is not offered", hint="Use 2, which replaces 1, or 0 for none.")
    _within("mirostat_tau", params.mirostat_tau, 0, _LARGEST)
    _within("mirostat_eta", params.mirostat_eta, 0, _LARGEST)
    _within("adaptive_target", params.adaptive_target, -_LARGEST, 1)
    _within("adaptive_decay", params.adaptive_decay, 0, 0.99)
    _at_least("min_tokens", params.min_tokens, 0)
    if params.seed is not None and not 0 <= params.seed < _SEED_LIMIT:
        raise UsageError(f"seed {params.seed} is not in 0 … 2^64 - 1", hint="Leave it out for a random one.")
    for token, bias in params.logit_bias:
        if token < 0 or (n_vocab is not None and token >= n_vocab):
            size = "" if n_vocab is None else f" of {n_vocab} tokens"
            raise UsageError(
                f"logit_bias names token {token}, which is not in the vocabulary{size}",
                hint="POST /tokenize of localspec serve tells the ids of a text.",
            )
        if bias != -math.inf:
            _within(f"logit_bias of token {token}", bias, -_LARGEST, _LARGEST)


def _check_dry(params: SamplingParams) -> None:
    _within("dry_multiplier", params.dry_multiplier, 0, _LARGEST)
    _within("dry_base", params.dry_base, 1, _LARGEST)
    _at_least("dry_allowed_length", params.dry_allowed_length, 0)
    _at_least("dry_penalty_last_n", params.dry_penalty_last_n, -1)
    for text in params.dry_sequence_breakers:
        _check_breaker(text)


def _check_breaker(text: str) -> None:
    size = len(text.encode("utf-8", "surrogatepass"))
    if not 0 < size <= _LONGEST_BREAKER:
        raise UsageError(
            f"one of the DRY sequence breakers has {size} bytes", hint=f"It must have 1 to {_LONGEST_BREAKER}."
        )


def _within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:  # false for NaN too
        raise UsageError(f"{name} is {value:g}", hint=f"It must be a number from {low:g} to {high:g}.")


def _at_least(name: str, value: int, low: int) -> None:
    if value < low:
        raise UsageError(f"{name} is {value}", hint=f"It must be {low} or more.")
