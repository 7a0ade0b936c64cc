"""Quantised matrices of GGUF files, the same bits in another order: what belongs to neighbouring rows lies together,
so that a kernel reads whole lines. Blocks of files are strided, and most are not even aligned to 4 bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Planes:
    """A matrix ``[rows, columns]`` of a ``kind``, as parts that a kernel reads:

    - ``Q8_0``: numbers int8 ``[columns / 64, rows, 64]``; two scales a word, ``[columns / 64, rows]``;
    - ``Q4_K``: two numbers a byte, 32 apart, uint8 ``[columns / 128, rows, 64]``; four steps a word, and four minima,
      ``[columns / 128, rows]``; what they count in, a step's first, two a word, ``[columns / 256, rows]``;
    - ``Q6_K``: low four bits, two numbers 64 apart a byte, uint8 ``[columns / 128, rows, 64]``; high two bits, four
      numbers 32 apart a byte, uint8 ``[columns / 128, rows, 32]``; four steps a word, ``[columns / 64, rows]``; what
      they count in, one a word, ``[columns / 256, rows]``.

    Words are int32, the first of what they hold in their lowest bits: what is smaller a GPU cannot copy past its
    registers. A column of ``Q8_0`` alone may end within a word, so those matrices have to have whole ones.
    """

    kind: str
    rows: int
    columns: int
    parts: tuple[Tensor, ...]

    def __len__(self) -> int:
        return self.rows

    @property
    def nbytes(self) -> int:
        """Bytes that a product reads of it."""
        return sum(int(part.nbytes) for part in self.parts)


@dataclass(frozen=True, slots=True)
class _Kind:
    """``numbers`` of a block, and its ``size`` in bytes; ``bits`` of a number in planes."""

    numbers: int
    size: int
    bits: float
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


def stacked(planes: Sequence[Planes]) -> Planes:
    """Matrices of one kind, one below the other."""
    parts = tuple(torch.cat(part, dim=1) for part in zip(*(one.parts for one in planes), strict=True))
    return Planes(planes[0].kind, sum(map(len, planes)), planes[0].columns, parts)


def raw_bytes(planes: Planes) -> Tensor:
    """The inverse of `repacked`."""
    return KINDS[planes.kind].join(planes.parts).reshape(planes.rows, -1)


def weights(planes: Planes) -> Tensor:
    """The matrix in float32, ``[rows, columns]``."""
    return KINDS[planes.kind].weights(planes.parts)


def _outward(x: Tensor) -> Tensor:
    """``[rows, groups, …]`` to ``[groups, rows, …]``, and back."""
    # Not contiguous(): it leaves an axis of one element with a stride that no other type can be seen through.
    return x.transpose(0, 1).clone(memory_format=torch.contiguous_format)


def _words(x: Tensor) -> Tensor:
    """Four bytes of the last axis a word, or two halves."""
    return x.contiguous().view(torch.int32)


def _split_q8_0(blocks: Tensor) -> tuple[Tensor, ...]:
    rows, n, _ = blocks.shape
    numbers = blocks[..., 2:].reshape(rows, n // 2, 64).view(torch.int8)
    return _outward(numbers), _outward(_words(blocks[..., :2].reshape(rows, n * 2)))


def _join_q8_0(parts: tuple[Tensor, ...]) -> Tensor:
    numbers, scale = map(_outward, parts)
    rows, n, _ = numbers.shape
    return torch.cat(
        [scale.view(torch.uint8).view(rows, n * 2, 2), numbers.view(torch.uint8).view(rows, n * 2, 32)], -1
    )


def _weights_q8_0(parts: tuple[Tensor, ...]) -> Tensor:
    numbers, scale = map(_outward, parts)
    return _scaled(numbers.flatten(1), scale.view(torch.half).float())


def _split_q4_k(blocks: Tensor) -> tuple[Tensor, ...]:
    rows, n, _ = blocks.shape
    low, high, mixed = blocks[..., 4:16].split(4, dim=-1)
    step = torch.cat([low & 63, (mixed & 15) | (low >> 6 << 4)], dim=-1).view(rows, n * 8)
    least = torch.cat([high & 63, (mixed >> 4) | (high >> 6 << 4)], dim=-1).view(rows, n * 8)
    numbers = blocks[..., 16:].reshape(rows, n * 2, 64)
    units = blocks[..., :4].reshape(rows, n * 4)
    return tuple(map(_outward, (numbers, _words(step), _words(least), _words(units))))


def _join_q4_k(parts: tuple[Tensor, ...]) -> Tensor:
    numbers, step, least, units = map(_outward, parts)
    rows, n = units.shape
    step, least = (one.view(torch.uint8).view(rows, n, 2, 4) for one in (step, least))
    low = step[:, :, 0] | (step[:, :, 1] >> 4 << 6)
    high = least[:, :, 0] | (least[:, :, 1] >> 4 << 6)
    mixed = (step[:, :, 1] & 15) | ((least[:, :, 1] & 15) << 4)
    return torch.cat([units.view(torch.uint8).view(rows, n, 4), low, high, mixed, numbers.view(rows, n, 128)], dim=-1)


def _weights_q4_k(parts: tuple[Tensor, ...]) -> Tensor:
    numbers, step, least, units = map(_outward, parts)
    of_step, of_least = units.view(torch.half).float().unflatten(1, (-1, 2)).unbind(-1)
    pairs = numbers.unflatten(-1, (2, 32))
    whole = torch.stack([pairs & 15, pairs >> 4], dim=3).flatten(1)
    steps, leasts = _scaled(step.view(torch.uint8), of_step), _scaled(least.view(torch.uint8), of_least)
    return (whole.float().view(len(step), -1, 32) * steps[..., None] - leasts[..., None]).flatten(1)


def _split_q6_k(blocks: Tensor) -> tuple[Tensor, ...]:
    rows, n, _ = blocks.shape
    low = blocks[..., :128].reshape(rows, n * 2, 64)
    high = blocks[..., 128:192].reshape(rows, n * 2, 32)
    unit = torch.cat([blocks[..., 208:], torch.zeros_like(blocks[..., 208:])], dim=-1)
    words = _words(blocks[..., 192:208].reshape(rows, n * 16)), _words(unit.view(rows, n * 4))
    return tuple(map(_outward, (low, high, *words)))


def _join_q6_k(parts: tuple[Tensor, ...]) -> Tensor:
    low, high, step, unit = map(_outward, parts)
    rows, n = unit.shape
    words = step.view(torch.uint8).view(rows, n, 16), unit.view(torch.uint8).view(rows, n, 4)[..., :2]
    return torch.cat([low.view(rows, n, 128), high.view(rows, n, 64), *words], dim=-1)


def _weights_q6_k(parts: tuple[Tensor, ...]) -> Tensor:
    low, high, step, unit = map(_outward, parts)
    lows = torch.stack([low[..., :32] & 15, low[..., 32:] & 15, low[..., :32] >> 4, low[..., 32:] >> 4], dim=2)
    highs = torch.stack([high >> 2 * part & 3 for part in range(4)], dim=2)
    whole = (lows | highs << 4).flatten(1).float() - 32
    return _scaled(whole, _scaled(step.view(torch.int8), unit.view(torch.half)[:, ::2].float()))


def _scaled(numbers: Tensor, scales: Tensor) -> Tensor:
    """``[rows, columns]``, each scale for as many neighbouring columns as there are."""
    return (numbers.float().view(*scales.shape, -1) * scales[..., None]).flatten(1)


KINDS = {
    "Q8_0": _Kind(32, 34, 8.5, _split_q8_0, _join_q8_0, _weights_q8_0),
    "Q4_K": _Kind(256, 144, 4.625, _split_q4_k, _join_q4_k, _weights_q4_k),
    "Q6_K": _Kind(256, 210, 6.625, _split_q6_k, _join_q6_k, _weights_q6_k),
}
