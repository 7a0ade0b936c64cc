"""The gate of a decoder's inner layer: SwiGLU, and gemma's with GELU."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from localspec.backends.torch.kernels.jit import Launch, ceil_div, kernel, tl

_BLOCK = 1024


@kernel
def _gated(GATE_UP, OUT, inner, stride, GELU: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = at < inner
    gate = tl.load(GATE_UP + row * stride + at, mask=there, other=0.0).to(tl.float32)
    up = tl.load(GATE_UP + row * stride + inner + at, mask=there, other=0.0).to(tl.float32)
    steep = gate
    if GELU:
        # 0.5 (1 + tanh(y)) is the logistic function of 2 y.
        steep = 1.5957691216057308 * (gate + 0.044715 * gate * gate * gate)
    tl.store(OUT + row * inner + at, (gate * tl.sigmoid(steep) * up).to(OUT.dtype.element_ty), mask=there)


def launch(gate_up: Tensor, out: Tensor, gelu: bool) -> Launch:
    rows, inner = out.shape
    return Launch(
        _gated,
        (rows, ceil_div(inner, _BLOCK)),
        (gate_up, out, inner, gate_up.stride(0)),
        {"GELU": gelu, "BLOCK": _BLOCK},
    )


def gated(gate_up: Tensor, *, gelu: bool = False) -> Tensor:
    """``silu(gate) · up`` of ``gate_up`` ``[rows, 2 · inner]``, the gate first: ``[rows, inner]``."""
    assert gate_up.stride(1) == 1
    rows, both = gate_up.shape
    out = torch.empty((rows, both // 2), dtype=gate_up.dtype, device=gate_up.device)
    launch(gate_up, out, gelu).run()
    return out


def gated_plainly(gate_up: Tensor, *, gelu: bool = False) -> Tensor:
    """`gated` in torch."""
    gate, up = gate_up.float().chunk(2, dim=1)
    opened = F.gelu(gate, approximate="tanh") if gelu else F.silu(gate)
    return (opened * up).to(gate_up.dtype)
