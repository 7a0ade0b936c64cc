"""Products with quantised matrices, for 1 to 64 rows: weights leave memory as they are stored, and become numbers in
registers. A program makes ``BN`` columns of the result; where that gives too few programs, each reads a part of the
weights, and the parts are added in a fixed order.

Weights are the left side of the product, since Hopper's tensor cores take that one from registers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from localspec.backends.torch.kernels.jit import Card, Launch, ceil_div, kernel, kernel_for_any, power_of_two, tl
from localspec.backends.torch.kernels.planes import Planes, weights

MAX_ROWS = 64


@kernel
def _whole(bits, ZERO: tl.constexpr):
    """What the low 23 bits count, less ``ZERO``, exactly: they are the fraction of 2^23. Converting whole numbers runs
    at a quarter of the speed or less."""
    return (bits.to(tl.int32) | 0x4B000000).to(tl.float32, bitcast=True) - (8388608.0 + ZERO)


@kernel
def _times(w, X, rows, columns, at, acc, BM: tl.constexpr, CT: tl.constexpr):
    """Adds the product of 32 columns of weights ``[BN, 32]`` from ``at`` on with those of ``X``."""
    m = tl.arange(0, BM)
    j = at + tl.arange(0, 32)
    x = tl.load(X + m[:, None] * columns + j[None, :], mask=m[:, None] < rows, other=0.0)
    return tl.dot(w.to(CT), tl.trans(x.to(CT)), acc, input_precision="ieee")


@kernel
def _store(acc, OUT, n, rows, width, BM: tl.constexpr):
    m = tl.arange(0, BM)
    out = OUT + (tl.program_id(1) * rows + m)[None, :] * width + n[:, None]
    tl.store(out, acc.to(OUT.dtype.element_ty), mask=(m < rows)[None, :] & (n < width)[:, None])


@kernel
def _half(words, AT: tl.constexpr):
    """The half precision number in the lower (0) or upper (1) half of each word."""
    return (words >> (16 * AT)).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)


@kernel
def _byte(words, AT: tl.constexpr):
    return (words >> (8 * AT)) & 255


@kernel_for_any("rows")
def _q8_0(
    X,
    NUMBERS,
    SCALES,
    OUT,
    rows,
    width,
    columns,
    BM: tl.constexpr,
    BN: tl.constexpr,
    CT: tl.constexpr,
):
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    there = n < width
    j = tl.arange(0, 32)
    acc = tl.zeros([BN, BM], tl.float32)
    each = tl.cdiv(columns // 64, tl.num_programs(1))
    first = tl.program_id(1) * each
    for c in range(first, tl.minimum(first + each, columns // 64)):
        line = c * width + n
        scales = tl.load(SCALES + line, mask=there, other=0)
        for part in tl.static_range(2):
            at = line[:, None] * 64 + (32 * part + j)[None, :]
            numbers = tl.load(NUMBERS + at, mask=there[:, None], other=0)
            w = _whole((numbers.to(tl.int32) & 255) ^ 128, 128.0) * _half(scales, part)[:, None]
            acc = _times(w, X, rows, columns, c * 64 + 32 * part, acc, BM, CT)
    _store(acc, OUT, n, rows, width, BM)


@kernel_for_any("rows")
def _q4_k(
    X,
    NUMBERS,
    STEPS,
    LEASTS,
    UNITS,
    OUT,
    rows,
    width,
    columns,
    BM: tl.constexpr,
    BN: tl.constexpr,
    CT: tl.constexpr,
):
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    there = n < width
    j = tl.arange(0, 32)
    acc = tl.zeros([BN, BM], tl.float32)
    each = tl.cdiv(columns // 128, tl.num_programs(1))
    first = tl.program_id(1) * each
    for c in range(first, tl.minimum(first + each, columns // 128)):
        line = c * width + n
        steps = tl.load(STEPS + line, mask=there, other=0)
        leasts = tl.load(LEASTS + line, mask=there, other=0)
        units = tl.load(UNITS + (c // 2) * width + n, mask=there, other=0)
        for pair in tl.static_range(2):
            at = line[:, None] * 64 + (32 * pair + j)[None, :]
            numbers = tl.load(NUMBERS + at, mask=there[:, None], other=0)
            for upper in tl.static_range(2):
                part = 2 * pair + upper
                step = _whole(_byte(steps, part), 0.0) * _half(units, 0)
                least = _whole(_byte(leasts, part), 0.0) * _half(units, 1)
                w = _whole((numbers >> (4 * upper)) & 15, 0.0) * step[:, None] - least[:, None]
                acc = _times(w, X, rows, columns, c * 128 + 32 * part, acc, BM, CT)
    _store(acc, OUT, n, rows, width, BM)


@kernel_for_any("rows")
def _q6_k(
    X,
    LOW,
    HIGH,
    STEPS,
    UNITS,
    OUT,
    rows,
    width,
    columns,
    BM: tl.constexpr,
    BN: tl.constexpr,
    CT: tl.constexpr,
):
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    there = n < width
    j = tl.arange(0, 32)
    acc = tl.zeros([BN, BM], tl.float32)
    each = tl.cdiv(columns // 128, tl.num_programs(1))
    first = tl.program_id(1) * each
    for c in range(first, tl.minimum(first + each, columns // 128)):
        line = c * width + n
        high = tl.load(HIGH + line[:, None] * 32 + j[None, :], mask=there[:, None], other=0)
        unit = _half(tl.load(UNITS + (c // 2) * width + n, mask=there, other=0), 0)
        for upper in tl.static_range(2):
            # Steps of 64 columns, 16 each.
            steps = tl.load(STEPS + (2 * c + upper) * width + n, mask=there, other=0)
            for side in tl.static_range(2):
                low = tl.load(LOW + line[:, None] * 64 + (32 * side + j)[None, :], mask=there[:, None], other=0)
                part = 2 * upper + side
                bits = ((low >> (4 * upper)) & 15) | (((high >> (2 * part)) & 3) << 4)
                one = _whole(_byte(steps, 2 * side) ^ 128, 128.0) * unit
                other = _whole(_byte(steps, 2 * side + 1) ^ 128, 128.0) * unit
                step = tl.where(j[None, :] < 16, one[:, None], other[:, None])
                acc = _times(_whole(bits, 32.0) * step, X, rows, columns, c * 128 + 32 * part, acc, BM, CT)
    _store(acc, OUT, n, rows, width, BM)


_KERNELS = {"Q8_0": _q8_0, "Q4_K": _q4_k, "Q6_K": _q6_k}
_BN = 64


def splits_of(card: Card, width: int, columns: int) -> int:
    """Parts of the columns, so that every multiprocessor has some programs to wait for memory with."""
    programs = ceil_div(width, _BN)
    return min(max(ceil_div(4 * card.processors, programs), 1), max(columns // 512, 1), 16)


def launch(x: Tensor, planes: Planes, out: Tensor, compute: Any, card: Card) -> Launch:
    """``out``: ``[splits, rows, matrix rows]``; ``compute``: the type in which tensor cores take numbers."""
    rows, columns = x.shape
    bm = min(power_of_two(rows, 16), MAX_ROWS)
    return Launch(
        _KERNELS[planes.kind],
        (ceil_div(planes.rows, _BN), out.shape[0]),
        (x, *planes.parts, out, rows, planes.rows, columns),
        {"BM": bm, "BN": _BN, "CT": compute},
        4,
        # More of them, and registers spill on sm_100.
        2 if card.generation == 10 and bm == MAX_ROWS else 3,
    )


def matmul(x: Tensor, planes: Planes) -> Tensor:
    """``x @ matrix.T``, ``[…, matrix rows]``, in the type of ``x``.

    Args:
        x: ``[…, columns]`` in one piece, read in parts of 64 rows. Tensor cores take weights in its type.
        planes: the matrix.
    """
    assert x.is_contiguous()
    assert x.shape[-1] == planes.columns
    assert planes.rows * planes.columns < 1 << 31  # places in it are counted in 32 bits
    parts = [_matmul(rows, planes) for rows in x.view(-1, planes.columns).split(MAX_ROWS)]
    return (parts[0] if len(parts) == 1 else torch.cat(parts)).view(*x.shape[:-1], planes.rows)


def _matmul(x: Tensor, planes: Planes) -> Tensor:
    """Of up to 64 rows."""
    card = Card.of(x.device)
    splits = splits_of(card, planes.rows, planes.columns)
    kept = x.dtype if splits == 1 else torch.float32
    out = torch.empty((splits, len(x), planes.rows), dtype=kept, device=x.device)
    launch(x, planes, out, _triton_type(x.dtype), card).run()
    return out[0] if splits == 1 else out.sum(0).to(x.dtype)


def matmul_plainly(x: Tensor, planes: Planes) -> Tensor:
    """`matmul` in torch: the whole matrix becomes numbers first."""
    return x @ weights(planes).to(x.dtype).T


def _triton_type(dtype: torch.dtype) -> Any:
    return {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}[dtype]
