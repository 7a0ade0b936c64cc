"""Which kernels a device runs: Triton's, or what torch has. The one place where that is chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from localspec.backends.torch.kernels import (
    commit,
    experts,
    gated,
    jit,
    norm,
    quant_matmul,
    rope_write,
    top_k,
    tree_attention,
)
from localspec.backends.torch.kernels.experts import Experts, Gate
from localspec.backends.torch.kernels.planes import Planes


@dataclass(frozen=True, slots=True)
class Ops:
    """A set of kernels: one way to compute what a decoder needs beside products with plain matrices; each as in its
    module.

    ``waits``: some of these wait for the device, so they cannot be part of a CUDA graph.
    """

    attend: Callable[..., Tensor]
    norm: Callable[[Tensor, Tensor, float], Tensor]
    add_norm: Callable[[Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor]]
    rope_write: Callable[..., None]
    gated: Callable[..., Tensor]
    commit: Callable[..., None]
    move_rows: Callable[..., None]
    top_k: Callable[..., tuple[Tensor, Tensor]]
    matmul: Callable[[Tensor, Planes], Tensor]
    experts: Callable[[Tensor, Tensor, Tensor, Experts, Gate], Tensor]
    waits: bool


TRITON = Ops(
    tree_attention.attend,
    norm.norm,
    norm.add_norm,
    rope_write.rope_write,
    gated.gated,
    commit.commit,
    commit.move_rows,
    top_k.top_k,
    quant_matmul.matmul,
    experts.through,
    waits=False,
)
PLAIN = Ops(
    tree_attention.attend_plainly,
    norm.norm_plainly,
    norm.add_norm_plainly,
    rope_write.rope_write_plainly,
    gated.gated_plainly,
    commit.commit_plainly,
    commit.move_rows_plainly,
    top_k.top_k_plainly,
    quant_matmul.matmul_plainly,
    experts.through_asked,
    waits=True,
)


@dataclass(frozen=True, slots=True)
class Choice:
    """``note``: one line for the user where Triton was to be had and is not; empty otherwise."""

    ops: Ops
    note: str = ""


def choose(device: torch.device) -> Choice:
    """Triton's kernels where ``device`` is one that they are for and they can be compiled."""
    if device.type != "cuda":
        return Choice(PLAIN)
    reason = _reason_against(device)
    return Choice(PLAIN, f"kernels of torch instead of Triton's: {reason}") if reason else Choice(TRITON)


def _reason_against(device: torch.device) -> str:
    if jit.triton is None:
        return "Triton is not installed (pip install 'localspec[torch]')"
    if torch.cuda.get_device_capability(device) < (8, 0):
        return f"{torch.cuda.get_device_name(device)} is older than they are written for (Ampere)"
    return _failure(lambda: gated.gated(*torch.ones((2, 1, 32), device=device)))


def _failure(try_out: Callable[[], Any]) -> str:
    """Why the first of all kernels cannot be compiled: no C compiler, no headers of Python, a driver too old."""
    try:
        try_out()
    except Exception as error:  # whatever it is, there is another way to compute
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return f"Triton cannot compile here ({lines[0][:120]})"
    return ""
