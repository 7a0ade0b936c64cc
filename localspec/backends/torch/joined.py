"""Matrices that read the same rows, one below the other: their product starts one kernel in place of three."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import torch
from torch import Tensor

from localspec.backends.torch.kernels.planes import Planes, stacked

Weight: TypeAlias = "Tensor | Planes"

#: As some architectures have them in their files.
_WHOLE = {"attn_qkv": ("attn_q", "attn_k", "attn_v"), "ffn_up": ("ffn_gate", "ffn_up")}


def join(weights: dict[str, Weight], layers: Iterable[int]) -> None:
    """Joins those of ``layers`` that are of one kind, in place."""
    for layer in layers:
        for whole, parts in _WHOLE.items():
            names = [f"blk.{layer}.{part}" for part in parts]
            matrices = [weights[f"{name}.weight"] for name in names if f"{name}.weight" in weights]
            if len(matrices) == len(names) and len({_kind(matrix) for matrix in matrices}) == 1:
                biases = [weights.pop(f"{name}.bias", None) for name in names]
                for name in names:
                    del weights[f"{name}.weight"]
                weights[f"blk.{layer}.{whole}.weight"] = _joined(matrices)
                if any(bias is not None for bias in biases):
                    weights[f"blk.{layer}.{whole}.bias"] = _of_all(biases, matrices)


def _kind(matrix: Weight) -> str:
    return matrix.kind if isinstance(matrix, Planes) else str(matrix.dtype)


def _joined(matrices: list[Weight]) -> Weight:
    planes = [matrix for matrix in matrices if isinstance(matrix, Planes)]
    return stacked(planes) if planes else torch.cat(matrices)


def _of_all(biases: list[Tensor | None], matrices: list[Weight]) -> Tensor:
    """What has no bias has one of zeros."""
    like = next(bias for bias in biases if bias is not None)
    return torch.cat(
        [like.new_zeros(len(matrix)) if bias is None else bias for bias, matrix in zip(biases, matrices, strict=True)]
    )
