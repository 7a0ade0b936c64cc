"""RMSNorm, with the sum that comes before it in a decoder."""

from __future__ import annotations

import torch
from torch import Tensor

from localspec.backends.torch.kernels.jit import Launch, kernel, power_of_two, tl


@kernel
def _add_norm(X, CARRIED, WEIGHT, OUT, eps, width, stride_x, stride_carried, ADD: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    there = at < width
    x = tl.load(X + row * stride_x + at, mask=there, other=0.0)
    if ADD:
        carried = CARRIED + row * stride_carried + at
        x = x.to(tl.float32) + tl.load(carried, mask=there, other=0.0).to(tl.float32)
        # Normed is what is carried on, rounded as it is kept.
        x = x.to(CARRIED.dtype.element_ty)
        tl.store(carried, x, mask=there)
    x = x.to(tl.float32)
    scale = tl.math.rsqrt(tl.sum(x * x, 0) / width + eps)
    weight = tl.load(WEIGHT + at, mask=there, other=0.0).to(tl.float32)
    tl.store(OUT + row * width + at, (x * scale * weight).to(OUT.dtype.element_ty), mask=there)


def launch(x: Tensor, weight: Tensor, eps: float, carried: Tensor | None, out: Tensor) -> Launch:
    rows, width = x.shape
    kept = x if carried is None else carried
    block = power_of_two(width)
    return Launch(
        _add_norm,
        (rows,),
        (x, kept, weight, out, eps, width, x.stride(0), kept.stride(0)),
        {"ADD": carried is not None, "BLOCK": block},
        min(max(block // 1024, 1), 8),
    )


def add_norm(x: Tensor, weight: Tensor, eps: float, carried: Tensor | None = None) -> Tensor:
    """RMSNorm of the rows of ``x`` ``[rows, width]``, or of their sum with ``carried``, which is then kept there."""
    assert x.stride(1) == 1
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    launch(x, weight, eps, carried, out).run()
    return out


def add_norm_plainly(x: Tensor, weight: Tensor, eps: float, carried: Tensor | None = None) -> Tensor:
    """`add_norm` in torch."""
    if carried is not None:
        carried += x
        x = carried
    wide = x.float()
    normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (normed * weight.float()).to(x.dtype)
