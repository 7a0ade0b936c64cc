"""Tensors of GGUF files, in float32, or quantised as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from localspec.backends.torch.kernels.planes import KINDS, Planes
from localspec.errors import ModelLoadError
from localspec.hub.header import Header, read_header
from localspec.hub.header import Tensor as Entry
from localspec.hub.names import parts_of

#: Is told the share of something that is done, 0…1; what it raises ends it.
Told = Callable[[float], None]
#: Makes planes of the bytes of a quantised matrix, ``[rows, bytes of a row]``, which is of a kind that has planes.
Pack = Callable[[Tensor, str], Planes]

EMBEDDING = ("token_embd.weight",)
#: Many models have one matrix for both ends.
UNEMBEDDING = ("output.weight", "token_embd.weight")


class GgufMatrix:
    """The first of ``names`` that the model at ``path`` has, left in its file: rows are read as they are asked for.

    Raises:
        ModelLoadError: none is there, or a file cannot be read.
    """

    def __init__(self, path: Path, names: tuple[str, ...]) -> None:
        header, found = _found(path, names)
        self._kind = gguf.GGMLQuantizationType(found.kind)
        self._raw = _raw(header, found)
        self.shape = tuple(reversed(found.shape))

    def rows(self, ids: NDArray[Any] | slice = slice(None)) -> Tensor:
        """``[rows, columns]``, of all rows or those of ``ids``."""
        return _float32(self._raw[ids], self._kind)


def gguf_tensor(path: Path, names: tuple[str, ...]) -> Tensor:
    """The first of ``names`` that is there: ``[rows, columns]``.

    Raises:
        ModelLoadError: as `GgufMatrix`.
    """
    return GgufMatrix(path, names).rows()


def gguf_tensors(
    path: Path,
    put: Callable[[Tensor], Tensor] = lambda read: read,
    told: Told = lambda share: None,
    pack: Pack | None = None,
) -> dict[str, Any]:
    """All of a model's, by name: ids (``d2t``) in int64, everything else in float32. What a file has in float32 is not
    read but mapped: its pages come when they are used.

    Args:
        put: takes each to where it is to lie.
        told: the share that was read, 0…1, before each.
        pack: does that with matrices that stay quantised. Not given: none does.

    Raises:
        ModelLoadError: a file cannot be read, or is shorter than it says.
    """
    headers = list(_headers(path))
    whole = max(sum(entry.elements for header in headers for entry in header.tensors), 1)
    found, done = dict[str, Any](), 0
    for header in headers:
        for entry in header.tensors:
            told(done / whole)
            if pack is not None and is_packable(entry):
                raw = torch.from_numpy(_raw(header, entry))
                found[entry.name] = pack(raw, gguf.GGMLQuantizationType(entry.kind).name)
            else:
                found[entry.name] = put(_tensor(header, entry))
            done += entry.elements
    told(1.0)
    return found


def is_packable(entry: Entry) -> bool:
    """Whether it can stay quantised: a matrix whose rows fill whole words of planes, and of which no rows are looked
    up."""
    kind = KINDS.get(gguf.GGMLQuantizationType(entry.kind).name)
    return kind is not None and len(entry.shape) == 2 and not entry.shape[0] % 64 and entry.name not in EMBEDDING


def packed_bytes(path: Path, each: int) -> int:
    """What a model's tensors take where some of them stay quantised, and a number of the others takes ``each`` bytes.

    Raises:
        ModelLoadError: a file cannot be read.
    """
    return int(sum(_size(entry, each) for header in _headers(path) for entry in header.tensors))


def _size(entry: Entry, each: int) -> float:
    if not is_packable(entry):
        return entry.elements * each
    return entry.elements * KINDS[gguf.GGMLQuantizationType(entry.kind).name].bits / 8


def _tensor(header: Header, entry: Entry) -> Tensor:
    kind, raw = gguf.GGMLQuantizationType(entry.kind), _raw(header, entry)
    return torch.from_numpy(raw.view(np.int64)) if kind == gguf.GGMLQuantizationType.I64 else _float32(raw, kind)


def _raw(header: Header, entry: Entry) -> NDArray[np.uint8]:
    """Its bytes, row by row, in the file."""
    block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(entry.kind)]
    if header.data + entry.offset + entry.elements // block * size > header.size:
        raise ModelLoadError(f"{header.path.name} ends before its tensor {entry.name}", hint="Download it again.")
    raw = np.memmap(header.path, np.uint8, "c", header.data + entry.offset, (entry.elements // block * size,))
    # GGUF names the fastest axis first.
    return raw.reshape(*reversed(entry.shape[1:]), -1)


def _float32(raw: NDArray[np.uint8], kind: Any) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(gguf.quants.dequantize(raw, kind), np.float32))


def _found(path: Path, names: tuple[str, ...]) -> tuple[Header, Entry]:
    headers = list(_headers(path))
    for name in names:
        for header in headers:
            for entry in header.tensors:
                if entry.name == name:
                    return header, entry
    raise ModelLoadError(f"{path.name} has no tensor {' or '.join(names)}", hint="Use another file of the model.")


def _headers(path: Path) -> Iterator[Header]:
    for name in parts_of(path.name):
        yield read_header(path.parent / name)
