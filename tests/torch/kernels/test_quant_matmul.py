"""Quantised matrices: planes hold the bits of the file's blocks, and products with them are those with its numbers."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("torch", reason="needs the extra 'torch'")

import torch

from localspec.backends.torch.kernels.jit import Card
from localspec.backends.torch.kernels.planes import KINDS, Planes, raw_bytes, repacked, weights
from localspec.backends.torch.kernels.quant_matmul import matmul, matmul_plainly, splits_of
from tests.torch.kernels.support import TOLERANCE, TYPES, error, generator

kinds = pytest.mark.parametrize("kind", KINDS)
#: Where a block has its scales, bytes of a half each.
SCALES = {"Q8_0": (0,), "Q4_K": (0, 2), "Q6_K": (208,)}


def blocks(kind: str, rows: int, columns: int) -> NDArray[np.uint8]:
    """Random bytes, with scales that are numbers: ``[rows, bytes]``."""
    numbers, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    rng = np.random.default_rng(5)
    raw = rng.integers(0, 256, (rows, columns // numbers, size), np.uint8)
    for at in SCALES[kind]:
        scale = rng.uniform(-1e-3, 1e-3, raw.shape[:2]).astype(np.float16)
        raw[..., at : at + 2] = scale[..., None].view(np.uint8)
    return raw.reshape(rows, -1)


def planes_of(kind: str, rows: int, columns: int) -> Planes:
    return repacked(torch.from_numpy(blocks(kind, rows, columns)), kind)


@kinds
@pytest.mark.parametrize("columns", [256, 1024])
def test_planes_hold_the_numbers_of_the_file(kind: str, columns: int) -> None:
    raw = blocks(kind, 6, columns)
    wanted = torch.from_numpy(gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[kind]))
    assert torch.equal(weights(repacked(torch.from_numpy(raw), kind)), wanted)


@kinds
def test_planes_hold_every_bit(kind: str) -> None:
    numbers, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    raw = torch.from_numpy(np.random.default_rng(6).integers(0, 256, (5, 4 * size), np.uint8))
    planes = repacked(raw, kind)
    assert (planes.rows, planes.columns) == (5, 4 * numbers)
    assert all(part.is_contiguous() for part in planes.parts)
    assert torch.equal(raw_bytes(planes), raw)


@pytest.mark.parametrize(("kind", "bits"), [("Q8_0", 8.5), ("Q4_K", 4.625), ("Q6_K", 6.625)])
def test_planes_take_little_more_than_the_file(kind: str, bits: float) -> None:
    assert planes_of(kind, 4, 512).nbytes * 8 / (4 * 512) == bits == KINDS[kind].bits


@kinds
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(("rows", "width", "columns"), [(1, 70, 512), (17, 64, 256), (64, 33, 768)])
def test_product(
    kind: str, dtype: torch.dtype, rows: int, width: int, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton", reason="needs Triton")
    monkeypatch.setattr(Card, "of", classmethod(lambda cls, device: Card(processors=1)))
    planes = planes_of(kind, width, columns)
    x = torch.randn(rows, columns, generator=generator(1)).to(dtype)
    wanted = x.double() @ weights(planes).double().T
    assert error(matmul(x, planes), wanted) < TOLERANCE[dtype]
    assert error(matmul_plainly(x, planes), wanted) < TOLERANCE[dtype]


def test_columns_are_parted_where_there_are_few_programs() -> None:
    assert splits_of(Card(132), 128256, 4096) == 1
    assert splits_of(Card(132), 4096, 4096) == 8
    assert splits_of(Card(132), 256, 256) == 1
