"""Rotary positions as configs of the hub tell of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from localspec.errors import ModelLoadError


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
    turns = rope_base(config) ** (-torch.arange(0, each, 2) / each)
    fits = float(settings["original_max_position_embeddings"]) * turns / (2 * math.pi)
    low, high = float(settings["low_freq_factor"]), float(settings["high_freq_factor"])
    as_is = ((fits - low) / (high - low)).clamp(0, 1)
    return 1 / ((1 - as_is) / float(settings["factor"]) + as_is)


def _settings(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Old configs have the base beside ``rope_scaling``, new ones all in ``rope_parameters``."""
    return config.get("rope_parameters") or config.get("rope_scaling") or {}


def paired(weights: Tensor, each: int) -> Tensor:
    """The rows of each head from halves, as RoPE turns them on the hub, to neighbouring pairs, as
    `localspec.backends.torch.llama.rotated` does."""
    return weights.reshape(-1, 2, each // 2, *weights.shape[1:]).transpose(1, 2).reshape(weights.shape)
