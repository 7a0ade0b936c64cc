"""Single tensors of a GGUF file, in float32."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import torch
from torch import Tensor

from localspec.errors import ModelLoadError
from localspec.hub.header import read_header

EMBEDDING = ("token_embd.weight",)
#: Many models have one matrix for both ends.
UNEMBEDDING = ("output.weight", "token_embd.weight")


def gguf_tensor(path: Path, names: tuple[str, ...]) -> Tensor:
    """The first of ``names`` that is there: ``[rows, columns]``.

    Raises:
        ModelLoadError: none is, or the file cannot be read.
    """
    header = read_header(path)
    by_name = {tensor.name: tensor for tensor in header.tensors}
    found = next((by_name[name] for name in names if name in by_name), None)
    if found is None:
        raise ModelLoadError(
            f"{path.name} has no tensor {' or '.join(names)}", hint="Use a model in one file, not in parts."
        )
    kind = gguf.GGMLQuantizationType(found.kind)
    block, size = gguf.GGML_QUANT_SIZES[kind]
    n_bytes = found.elements // block * size
    raw = np.memmap(path, np.uint8, "r", header.data + found.offset, (n_bytes,))
    # GGUF names the fastest axis first.
    rows = raw.reshape(*reversed(found.shape[1:]), -1)
    weights = gguf.quants.dequantize(rows, kind)
    return torch.from_numpy(np.ascontiguousarray(weights, np.float32))
