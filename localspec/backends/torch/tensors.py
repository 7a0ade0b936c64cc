"""Tensors of GGUF files, in float32, or quantised as they are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from localspec.backends.torch.kernels.planes import KINDS
from localspec.backends.torch.places import Places
from localspec.errors import ModelLoadError
from localspec.hub.header import Header, read_header
from localspec.hub.header import Tensor as Entry
from localspec.hub.names import parts_of

#: Is told the share of something that is done, 0…1; what it raises ends it.
Told = Callable[[float], None]

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
    path: Path, places: Places | None = None, told: Told = lambda share: None, *, packed: bool = False
) -> dict[str, Any]:
    """All of a model's, by name. What a file has in float32 is not read but mapped, if it stays so: its pages come when
    they are used.

    Args:
        places: where they are to lie; a table of tokens that makes scores, too, lies in two places if these are not the
            same. Not given: here, ids (``d2t``) in int64, everything else in float32.
        told: the share that was read, 0…1, before each.
        packed: matrices that can stay quantised do, in the last place.

    Raises:
        ModelLoadError: a file cannot be read, or is shorter than it says.
    """
    headers = list(_headers(path))
    whole = max(sum(entry.elements for header in headers for entry in header.tensors), 1)
    found, done = dict[str, Any](), 0
    for header in headers:
        for entry in header.tensors:
            told(done / whole)
            if places is None:
                found[entry.name] = _tensor(header, entry)
            elif packed and _stays_packed(entry, places):
                raw, kind = torch.from_numpy(_raw(header, entry)), gguf.GGMLQuantizationType(entry.kind).name
                found[entry.name] = places.last.pack(raw, kind)
            else:
                found[entry.name] = places.of_tensor(entry.name).put(_tensor(header, entry))
            done += entry.elements
    if places is not None and places.is_divided and (tied := _tied(found)):
        found[UNEMBEDDING[0]] = places.last.put(found[tied])
    told(1.0)
    return found


def _tied(names: Collection[str]) -> str | None:
    """The table of tokens, where it makes scores, too."""
    return EMBEDDING[0] if EMBEDDING[0] in names and UNEMBEDDING[0] not in names else None


def _stays_packed(entry: Entry, places: Places) -> bool:
    return is_packable(entry) and places.of_tensor(entry.name) == places.last


def is_packable(entry: Entry) -> bool:
    """Whether it can stay quantised: a matrix whose rows fill whole words of planes, and of which no rows are looked
    up."""
    kind = KINDS.get(gguf.GGMLQuantizationType(entry.kind).name)
    return kind is not None and len(entry.shape) == 2 and not entry.shape[0] % 64 and entry.name not in EMBEDDING


def weight_sizes(path: Path, places: Places, *, packed: bool) -> dict[str, int]:
    """What tensors take where `gguf_tensors` puts them, by name.

    Raises:
        ModelLoadError: a file cannot be read.
    """
    found = {one.name: _size(one, places, packed=packed) for header in _headers(path) for one in header.tensors}
    if places.is_divided and (tied := _tied(found)):
        found[UNEMBEDDING[0]] = found[tied] // places.first.dtype.itemsize * places.last.dtype.itemsize
    return found


def _size(entry: Entry, places: Places, *, packed: bool) -> int:
    if packed and _stays_packed(entry, places):
        return round(entry.elements * KINDS[gguf.GGMLQuantizationType(entry.kind).name].bits / 8)
    return entry.elements * int(places.of_tensor(entry.name).dtype.itemsize)


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
