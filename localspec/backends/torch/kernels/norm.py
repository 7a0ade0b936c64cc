"""RMSNorm, with the sum that comes before it in a decoder."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from localspec.backends.torch.kernels.jit import Launch, kernel, power_of_two, tl


@kernel
def _add_norm(
    X, CARRIED, WEIGHT, SUM, OUT, eps, width, stride_x, stride_carried, ADD: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    there = at < width
    x = tl.load(X + row * stride_x + at, mask=there, other=0.0)
    if ADD:
        x = x.to(tl.float32) + tl.load(CARRIED + row * stride_carried + at, mask=there, other=0.0).to(tl.float32)
        # Normed is what is carried on, rounded as it is kept.
        x = x.to(SUM.dtype.element_ty)
        tl.store(SUM + row * width + at, x, mask=there)
    x = x.to(tl.float32)
    scale = tl.math.rsqrt(tl.sum(x * x, 0) / width + eps)
    weight = tl.load(WEIGHT + at, mask=there, other=0.0).to(tl.float32)
    tl.store(OUT + row * width + at, (x * scale * weight).to(OUT.dtype.element_ty), mask=there)


def launch(x: Tensor, weight: Tensor, eps: float, carried: Tensor | None, total: Tensor, out: Tensor) -> Launch:
    """``total``: where the sum of ``x`` and ``carried`` goes, if there is one."""
    rows, width = x.shape
    kept = x if carried is None else carried
    block = power_of_two(width)
    return Launch(
        _add_norm,
        (rows,),
        (x, kept, weight, total, out, eps, width, x.stride(0), kept.stride(0)),
        {"ADD": carried is not None, "BLOCK": block},
        min(max(block // 1024, 1), 8),
    )


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm over the last axis."""
    rows = x.flatten(0, -2)
    assert rows.stride(1) == 1
    out = torch.empty(rows.shape, dtype=x.dtype, device=x.device)
    launch(rows, weight, eps, None, out, out).run()
    return out.view(x.shape)


def add_norm(x: Tensor, carried: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The sum of ``x`` and ``carried``, and its RMSNorm over the last axis."""
    rows, others = x.flatten(0, -2), carried.flatten(0, -2)
    assert rows.stride(1) == others.stride(1) == 1
    total, out = (torch.empty(rows.shape, dtype=carried.dtype, device=x.device) for _ in range(2))
    launch(rows, weight, eps, others, total, out).run()
    return total.view(x.shape), out.view(x.shape)


def norm_plainly(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """`norm` in torch."""
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


def add_norm_plainly(x: Tensor, carried: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """`add_norm` in torch."""
    total = carried + x
    return total, norm_plainly(total, weight, eps)
