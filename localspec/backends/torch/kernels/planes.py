"""Quantised matrices of GGUF files, the same bits in another order: what belongs to neighbouring rows lies together,
so that a kernel reads whole lines. Blocks of files are strided, and most are not even aligned to 4 bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Planes:
    """A matrix ``[rows, columns]`` of a ``kind``, as parts that a kernel reads:

    - ``Q8_0``: numbers int8 ``[columns / 32, rows, 32]``, scales fp16 ``[columns / 32, rows]``;
    - ``Q4_K``: two numbers a byte, 32 apart, uint8 ``[columns / 64, rows, 32]``; steps and minima uint8
      ``[columns / 32, rows]``; what each of them counts in, fp16 ``[columns / 256, rows]``;
    - ``Q6_K``: low four bits, two numbers 64 apart a byte, uint8 ``[columns / 128, rows, 64]``; high two bits, four
      numbers 32 apart a byte, uint8 ``[columns / 128, rows, 32]``; steps int8 ``[columns / 16, rows]``; what they
      count in, fp16 ``[columns / 256, rows]``.
    """

    kind: str
    rows: int
    columns: int
    parts: tuple[Tensor, ...]

    @property
    def size(self) -> int:
        """Bytes that a product reads of it."""
        return sum(part.numel() * part.element_size() for part in self.parts)


@dataclass(frozen=True, slots=True)
class _Kind:
    """``numbers`` of a block, and its ``size`` in bytes."""

    numbers: int
    size: int
    split: Callable[[Tensor], tuple[Tensor, ...]]
    join: Callable[[tuple[Tensor, ...]], Tensor]
    weights: Callable[[tuple[Tensor, ...]], Tensor]


def repacked(raw: Tensor, kind: str) -> Planes:
    """Planes of the bytes of a matrix, uint8 ``[rows, bytes of a row]``, on the device where they are.

    Raises:
        KeyError: a kind without planes.
    """
    found = KINDS[kind]
    rows, width = raw.shape
    return Planes(kind, rows, width // found.size * found.numbers, found.split(raw.view(rows, -1, found.size)))


def raw_bytes(planes: Planes) -> Tensor:
    """The inverse of `repacked`."""
    return KINDS[planes.kind].join(planes.parts).reshape(planes.rows, -1)


def weights(planes: Planes) -> Tensor:
    """The matrix in float32, ``[rows, columns]``."""
    return KINDS[planes.kind].weights(planes.parts)


def _outward(x: Tensor) -> Tensor:
    """``[rows, groups, …]`` to ``[groups, rows, …]``, and back."""
    return x.transpose(0, 1).contiguous()


def _halves(x: Tensor) -> Tensor:
    """fp16 of the two bytes of the last axis, which goes."""
    return x.contiguous().view(torch.float16)[..., 0]


def _bytes(x: Tensor) -> Tensor:
    """The inverse of `_halves`."""
    return x.contiguous()[..., None].view(torch.uint8)


def _split_q8_0(blocks: Tensor) -> tuple[Tensor, ...]:
    return _outward(blocks[..., 2:].view(torch.int8)), _outward(_halves(blocks[..., :2]))


def _join_q8_0(parts: tuple[Tensor, ...]) -> Tensor:
    numbers, scale = map(_outward, parts)
    return torch.cat([_bytes(scale), numbers.view(torch.uint8)], dim=-1)


def _weights_q8_0(parts: tuple[Tensor, ...]) -> Tensor:
    numbers, scale = map(_outward, parts)
    return (numbers.float() * scale.float()[..., None]).flatten(1)


def _split_q4_k(blocks: Tensor) -> tuple[Tensor, ...]:
    rows, n, _ = blocks.shape
    packed = blocks[..., 4:16]
    low, high, mixed = packed[..., :4], packed[..., 4:8], packed[..., 8:]
    step = torch.cat([low & 63, (mixed & 15) | (low >> 6 << 4)], dim=-1).view(rows, n * 8)
    least = torch.cat([high & 63, (mixed >> 4) | (high >> 6 << 4)], dim=-1).view(rows, n * 8)
    numbers = blocks[..., 16:].reshape(rows, n * 4, 32)
    scales = _halves(blocks[..., :2]), _halves(blocks[..., 2:4])
    return tuple(map(_outward, (numbers, step, least, *scales)))


def _join_q4_k(parts: tuple[Tensor, ...]) -> Tensor:
    numbers, step, least, of_step, of_least = map(_outward, parts)
    rows, n = of_step.shape
    step, least = step.view(rows, n, 2, 4), least.view(rows, n, 2, 4)
    low = step[:, :, 0] | (step[:, :, 1] >> 4 << 6)
    high = least[:, :, 0] | (least[:, :, 1] >> 4 << 6)
    mixed = (step[:, :, 1] & 15) | ((least[:, :, 1] & 15) << 4)
    return torch.cat([_bytes(of_step), _bytes(of_least), low, high, mixed, numbers.view(rows, n, 128)], dim=-1)


def _weights_q4_k(parts: tuple[Tensor, ...]) -> Tensor:
    numbers, step, least, of_step, of_least = map(_outward, parts)
    steps, leasts = _scaled(step, of_step), _scaled(least, of_least)
    whole = torch.stack([numbers & 15, numbers >> 4], dim=2).flatten(1, 2)
    return (whole.float() * steps[..., None] - leasts[..., None]).flatten(1)


def _split_q6_k(blocks: Tensor) -> tuple[Tensor, ...]:
    rows, n, _ = blocks.shape
    low = blocks[..., :128].reshape(rows, n * 2, 64)
    high = blocks[..., 128:192].reshape(rows, n * 2, 32)
    step = blocks[..., 192:208].view(torch.int8).reshape(rows, n * 16)
    return tuple(map(_outward, (low, high, step, _halves(blocks[..., 208:]))))


def _join_q6_k(parts: tuple[Tensor, ...]) -> Tensor:
    low, high, step, scale = map(_outward, parts)
    rows, n = scale.shape
    step = step.view(torch.uint8).view(rows, n, 16)
    return torch.cat([low.view(rows, n, 128), high.view(rows, n, 64), step, _bytes(scale)], dim=-1)


def _weights_q6_k(parts: tuple[Tensor, ...]) -> Tensor:
    low, high, step, scale = map(_outward, parts)
    lows = torch.stack([low[..., :32] & 15, low[..., 32:] & 15, low[..., :32] >> 4, low[..., 32:] >> 4], dim=2)
    highs = torch.stack([high >> 2 * part & 3 for part in range(4)], dim=2)
    whole = (lows | highs << 4).float() - 32
    steps = _scaled(step, scale)
    return (whole.view(len(step), -1, 16) * steps[..., None]).flatten(1)


def _scaled(step: Tensor, scale: Tensor) -> Tensor:
    """Steps ``[rows, groups]``, in what they count in, ``[rows, fewer groups]``."""
    return step.float() * scale.float().repeat_interleave(step.shape[1] // scale.shape[1], dim=1)


KINDS = {
    "Q8_0": _Kind(32, 34, _split_q8_0, _join_q8_0, _weights_q8_0),
    "Q4_K": _Kind(256, 144, _split_q4_k, _join_q4_k, _weights_q4_k),
    "Q6_K": _Kind(256, 210, _split_q6_k, _join_q6_k, _weights_q6_k),
}
