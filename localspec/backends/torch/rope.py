"""Rotary positions: what they compute, and how configs of the hub tell of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from localspec.errors import ModelLoadError


def turns(each: int, base: float, factors: Tensor | None = None) -> Tensor:
    """The radians by which a position turns each pair of ``each`` numbers, ``[each / 2]``; ``factors`` of the same
    shape are how much slower some of them turn, for longer texts."""
    found = base ** (-torch.arange(0, each, 2) / each)
    return found if factors is None else found / factors


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """How positions are fitted to longer texts than a model first learnt, in llama.cpp's terms.

    Args:
        scale: what positions are multiplied by: 1 / N for texts N times as long.
        yarn: the share in which quick pairs turn as ever (YaRN, arXiv 2309.00071); 0: all pairs are scaled alike.
        size: what sine and cosine are multiplied by, beside what YaRN does.
        original: tokens of the texts first learnt; ``fast`` and ``slow`` are the turns in them from which on YaRN
            counts a pair as quick, and up to which as slow.
    """

    scale: float = 1.0
    yarn: float = 0.0
    size: float = 1.0
    original: int = 0
    fast: float = 32.0
    slow: float = 1.0

    @property
    def magnitude(self) -> float:
        """What sine and cosine are multiplied by."""
        return self.size * (1 - 0.1 * math.log(self.scale) if self.yarn and self.scale < 1 else 1.0)

    def scaled(self, turns: Tensor, base: float) -> Tensor:
        """The radians of a position, from those without scaling, of which ``base`` is the base."""
        slowed = turns * self.scale
        if not self.yarn:
            return slowed
        low, high = math.floor(self._pair(self.fast, turns, base)), math.ceil(self._pair(self.slow, turns, base))
        low, high = max(0, low), min(2 * len(turns) - 1, high)
        quick = 1 - ((torch.arange(len(turns)) - low) / max(0.001, high - low)).clamp(0, 1)
        return slowed + (turns - slowed) * quick * self.yarn

    def _pair(self, rounds: float, turns: Tensor, base: float) -> float:
        """The pair, counted from the quickest, that turns so often in a text of the original length."""
        return len(turns) * math.log(self.original / (rounds * 2 * math.pi)) / math.log(base)


def cos_and_sin(positions: Tensor, turns: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine of the angles at ``positions`` ``[n]``, where a position ``turns`` so far: ``[n, each / 2]``."""
    angles = positions[:, None].float() * turns
    return angles.cos(), angles.sin()


def rotated(x: Tensor, turn: tuple[Tensor, Tensor], *, halves: bool = False) -> Tensor:
    """RoPE over neighbouring pairs, as GGUF files of llama have their weights, or over pairs that lie half a head
    apart; ``x`` is ``[…, n, each]``. Where ``turn`` has fewer pairs, what lies behind them stays as it is."""
    cos, sin = turn
    turned = 2 * cos.shape[-1]
    x, rest = x[..., :turned], x[..., turned:]
    first, second = x.chunk(2, dim=-1) if halves else (x[..., 0::2], x[..., 1::2])
    both = first * cos - second * sin, first * sin + second * cos
    found = torch.cat(both, dim=-1) if halves else torch.stack(both, dim=-1).flatten(-2)
    return torch.cat((found, rest), dim=-1) if rest.shape[-1] else found


def rope_base(config: Mapping[str, Any]) -> float:
    return float(_settings(config).get("rope_theta") or config.get("rope_theta") or 10000.0)


def rope_factors(config: Mapping[str, Any], each: int) -> Tensor | None:
    """How much slower each of the pairs of ``each`` numbers turns than in short texts (Llama 3.1: slow ones by
    ``factor``, quick ones not, those between in part): ``[each / 2]``; ``None``: none does.

    Raises:
        ModelLoadError: another way to scale them.
        KeyError: a number is not there.
    """
    settings = _settings(config)
    kind = settings.get("rope_type") or settings.get("type") or "default"
    if kind == "default":
        return None
    if kind == "linear":
        return torch.full((each // 2,), float(settings["factor"]))
    if kind != "llama3":
        raise ModelLoadError(
            f"positions are scaled by {kind}; torch knows llama3 and linear", hint="Use a GGUF file of it."
        )
    quick = turns(each, rope_base(config))
    fits = float(settings["original_max_position_embeddings"]) * quick / (2 * math.pi)
    low, high = float(settings["low_freq_factor"]), float(settings["high_freq_factor"])
    as_is = ((fits - low) / (high - low)).clamp(0, 1)
    return 1 / ((1 - as_is) / float(settings["factor"]) + as_is)


def _settings(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Old configs have the base beside ``rope_scaling``, new ones all in ``rope_parameters``."""
    return config.get("rope_parameters") or config.get("rope_scaling") or {}


def paired(weights: Tensor, each: int) -> Tensor:
    """The rows of each head of attention from halves, as RoPE turns them on the hub, to neighbouring pairs, as
    `rotated` does."""
    return weights.reshape(-1, 2, each // 2, *weights.shape[1:]).transpose(1, 2).reshape(weights.shape)


def halved(weights: Tensor, each: int) -> Tensor:
    """The inverse of `paired`."""
    return weights.reshape(-1, each // 2, 2, *weights.shape[1:]).transpose(1, 2).reshape(weights.shape)
