"""The gate of a decoder's inner layer: SwiGLU, and gemma's with GELU."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from localspec.backends.torch.kernels.jit import Launch, ceil_div, kernel, tl

_BLOCK = 1024


@kernel
def _gated(GATE, UP, OUT, inner, stride_gate, stride_up, GELU: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = at < inner
    gate = tl.load(GATE + row * stride_gate + at, mask=there, other=0.0).to(tl.float32)
    up = tl.load(UP + row * stride_up + at, mask=there, other=0.0).to(tl.float32)
    steep = gate
    if GELU:
        # 0.5 (1 + tanh(y)) is the logistic function of 2 y.
        steep = 1.5957691216057308 * (gate + 0.044715 * gate * gate * gate)
    tl.store(OUT + row * inner + at, (gate * tl.sigmoid(steep) * up).to(OUT.dtype.element_ty), mask=there)


def launch(gate: Tensor, up: Tensor, out: Tensor, gelu: bool) -> Launch:
    rows, inner = out.shape
    return Launch(
        _gated,
        (rows, ceil_div(inner, _BLOCK)),
        (gate, up, out, inner, gate.stride(0), up.stride(0)),
        {"GELU": gelu, "BLOCK": _BLOCK},
    )


def gated(gate: Tensor, up: Tensor, *, gelu: bool = False) -> Tensor:
    """``silu(gate) · up``, ``[…, inner]`` each; rows may be apart, as parts of one wide product."""
    gates, ups = gate.flatten(0, -2), up.flatten(0, -2)
    assert gates.stride(1) == ups.stride(1) == 1
    out = torch.empty(gates.shape, dtype=gate.dtype, device=gate.device)
    launch(gates, ups, out, gelu).run()
    return out.view(gate.shape)


def gated_plainly(gate: Tensor, up: Tensor, *, gelu: bool = False) -> Tensor:
    """`gated` in torch."""
    return (F.gelu(gate, approximate="tanh") if gelu else F.silu(gate)) * up
