"""Queries and keys turned by their positions, and keys and values written where the pool has their slots."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from localspec.backends.torch.kernels.jit import Launch, kernel, power_of_two, tl
from localspec.backends.torch.kernels.norm import norm_plainly
from localspec.backends.torch.rope import rotated


@dataclass(frozen=True, slots=True)
class Turn:
    """How positions turn heads.

    Args:
        cos: ``[rows, turned / 2]`` float32; numbers of a head beyond ``turned`` stay as they are.
        sin: as ``cos``.
        halves: a number's partner is half of ``turned`` away (qwen, gemma), not its neighbour (llama in GGUF files).
    """

    cos: Tensor
    sin: Tensor
    halves: bool = False

    def to(self, device: torch.device) -> Turn:
        return Turn(self.cos.to(device), self.sin.to(device), self.halves)


@dataclass(frozen=True, slots=True)
class HeadNorms:
    """RMSNorm of each head before it is turned (qwen3, gemma3): weights ``[each]``."""

    q: Tensor
    k: Tensor
    eps: float


@kernel
def _rope_write(
    Q,
    K,
    V,
    COS,
    SIN,
    SLOTS,
    KEYS,
    VALUES,
    Q_WEIGHT,
    K_WEIGHT,
    eps,
    stride_q,
    stride_k,
    stride_v,
    stride_slot,
    stride_head,
    HEADS: tl.constexpr,
    EACH: tl.constexpr,
    TURNED: tl.constexpr,
    HALVES: tl.constexpr,
    NORMED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0)
    head = tl.program_id(1)
    pair = tl.arange(0, BLOCK)
    there = pair < EACH // 2
    turns = pair < TURNED // 2
    if HALVES:
        # Those that stay as they are make pairs behind the others.
        one = tl.where(turns, pair, 2 * pair)
        other = tl.where(turns, pair + TURNED // 2, 2 * pair + 1)
    else:
        one = 2 * pair
        other = 2 * pair + 1
    cos = tl.load(COS + row * (TURNED // 2) + pair, mask=turns, other=1.0)
    sin = tl.load(SIN + row * (TURNED // 2) + pair, mask=turns, other=0.0)
    if head < HEADS:
        source = Q + row * stride_q + head * EACH
        weight = Q_WEIGHT
    else:
        source = K + row * stride_k + (head - HEADS) * EACH
        weight = K_WEIGHT
    a = tl.load(source + one, mask=there, other=0.0).to(tl.float32)
    b = tl.load(source + other, mask=there, other=0.0).to(tl.float32)
    if NORMED:
        scale = tl.math.rsqrt(tl.sum(a * a + b * b, 0) / EACH + eps)
        a = a * scale * tl.load(weight + one, mask=there, other=0.0).to(tl.float32)
        b = b * scale * tl.load(weight + other, mask=there, other=0.0).to(tl.float32)
    first = a * cos - b * sin
    second = a * sin + b * cos
    if head < HEADS:
        tl.store(source + one, first.to(Q.dtype.element_ty), mask=there)
        tl.store(source + other, second.to(Q.dtype.element_ty), mask=there)
    else:
        slot = tl.load(SLOTS + row).to(tl.int64)
        kept = there & (slot >= 0)
        at = slot * stride_slot + (head - HEADS).to(tl.int64) * stride_head
        tl.store(KEYS + at + one, first.to(KEYS.dtype.element_ty), mask=kept)
        tl.store(KEYS + at + other, second.to(KEYS.dtype.element_ty), mask=kept)
        value = V + row * stride_v + (head - HEADS) * EACH + pair
        half = EACH // 2
        for part in tl.static_range(2):
            moved = tl.load(value + part * half, mask=there, other=0.0)
            tl.store(VALUES + at + pair + part * half, moved.to(VALUES.dtype.element_ty), mask=kept)


def launch(
    q: Tensor, k: Tensor, v: Tensor, turn: Turn, slots: Tensor, keys: Tensor, values: Tensor, norms: HeadNorms | None
) -> Launch:
    rows, heads, each = q.shape
    weights = (q, k) if norms is None else (norms.q, norms.k)
    return Launch(
        _rope_write,
        (rows, heads + k.shape[1]),
        (
            *(q, k, v, turn.cos, turn.sin, slots, keys, values, *weights),
            norms.eps if norms else 0.0,
            *(q.stride(0), k.stride(0), v.stride(0), keys.stride(0), keys.stride(1)),
        ),
        {
            "HEADS": heads,
            "EACH": each,
            "TURNED": 2 * turn.cos.shape[1],
            "HALVES": turn.halves,
            "NORMED": norms is not None,
            "BLOCK": power_of_two(each // 2),
        },
        1,
    )


def rope_write(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    turn: Turn,
    slots: Tensor,
    keys: Tensor,
    values: Tensor,
    norms: HeadNorms | None = None,
) -> None:
    """Turns ``q`` in place, and writes ``k``, turned, and ``v`` into the pool.

    Args:
        q: ``[rows, heads, each]``, heads in one piece; rows may be apart, as parts of one wide product.
        k: ``[rows, kv heads, each]``.
        v: as ``k``.
        turn: cosines and sines of the rows' positions.
        slots: ``[rows]`` int32; below 0: not kept (a row that only fills a bucket).
        keys: ``[slots, kv heads, each]``, the pool; slots and heads may lie in either order.
        values: as ``keys``.
        norms: of heads.
    """
    assert q.stride()[1:] == k.stride()[1:] == v.stride()[1:] == (q.shape[2], 1)
    assert keys.stride() == values.stride()
    assert keys.stride(2) == 1
    launch(q, k, v, turn, slots, keys, values, norms).run()


def rope_write_plainly(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    turn: Turn,
    slots: Tensor,
    keys: Tensor,
    values: Tensor,
    norms: HeadNorms | None = None,
) -> None:
    """`rope_write` in torch."""
    turned_q, turned_k = turned(q.transpose(0, 1), k.transpose(0, 1), turn, norms)
    kept = slots >= 0
    where = slots[kept].long()
    keys[where] = turned_k.transpose(0, 1)[kept]
    values[where] = v[kept]
    q.copy_(turned_q.transpose(0, 1))


def turned(q: Tensor, k: Tensor, turn: Turn, norms: HeadNorms | None) -> tuple[Tensor, Tensor]:
    """Queries and keys ``[…, rows, each]``, normed and turned."""
    if norms is not None:
        q, k = norm_plainly(q, norms.q, norms.eps), norm_plainly(k, norms.k, norms.eps)
    angle = turn.cos, turn.sin
    return rotated(q, angle, halves=turn.halves).to(q.dtype), rotated(k, angle, halves=turn.halves).to(k.dtype)
