"""Single tensors of a GGUF file, in float32."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from localspec.errors import ModelLoadError
from localspec.hub.header import Header, read_header
from localspec.hub.header import Tensor as Entry
from localspec.hub.names import parts_of

EMBEDDING = ("token_embd.weight",)
#: Many models have one matrix for both ends.
UNEMBEDDING = ("output.weight", "token_embd.weight")


class GgufMatrix:
    """The first of ``names`` that the model at ``path`` has, left in its file: rows are read as they are asked for.

    Raises:
        ModelLoadError: none is there, or a file cannot be read.
    """

    def __init__(self, path: Path, names: tuple[str, ...]) -> None:
        part, header, found = _found(path, names)
        self._kind = gguf.GGMLQuantizationType(found.kind)
        block, size = gguf.GGML_QUANT_SIZES[self._kind]
        raw = np.memmap(part, np.uint8, "c", header.data + found.offset, (found.elements // block * size,))
        # GGUF names the fastest axis first.
        self._raw = raw.reshape(*reversed(found.shape[1:]), -1)
        self.shape = tuple(reversed(found.shape))

    def rows(self, ids: NDArray[Any] | slice = slice(None)) -> Tensor:
        """``[rows, columns]``, of all rows or those of ``ids``."""
        weights = gguf.quants.dequantize(self._raw[ids], self._kind)
        return torch.from_numpy(np.ascontiguousarray(weights, np.float32))


def gguf_tensor(path: Path, names: tuple[str, ...]) -> Tensor:
    """The first of ``names`` that is there: ``[rows, columns]``.

    Raises:
        ModelLoadError: as `GgufMatrix`.
    """
    return GgufMatrix(path, names).rows()


def _found(path: Path, names: tuple[str, ...]) -> tuple[Path, Header, Entry]:
    headers = list(_headers(path))
    for name in names:
        for header in headers:
            for entry in header.tensors:
                if entry.name == name:
                    return header.path, header, entry
    raise ModelLoadError(f"{path.name} has no tensor {' or '.join(names)}", hint="Use another file of the model.")


def _headers(path: Path) -> Iterator[Header]:
    for name in parts_of(path.name):
        yield read_header(path.parent / name)
