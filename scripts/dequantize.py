#!/usr/bin/env python3
"""Rewrites a GGUF file with all its weights in one type, everything else unchanged.

    scripts/dequantize.py model.Q4_1.gguf model.F32.gguf --type f32

A float copy of a quantised model computes nearly the same text with far less rounding, so it is the target to
hunt logic faults with.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf.quants import dequantize, quantize

TYPES = {
    "f32": (gguf.GGMLQuantizationType.F32, gguf.LlamaFileType.ALL_F32),
    "f16": (gguf.GGMLQuantizationType.F16, gguf.LlamaFileType.MOSTLY_F16),
    "q8_0": (gguf.GGMLQuantizationType.Q8_0, gguf.LlamaFileType.MOSTLY_Q8_0),
}


def requantize(source: Path, target: Path, kind: str = "f32") -> Path:
    """Copies the model at ``source`` to ``target`` with its matrices in ``kind``. Returns ``target``.

    Vectors (norms, biases, rope factors) stay F32, as llama.cpp wants them. A row that ``kind`` cannot hold
    (q8_0 needs multiples of 32) stays F32 too.

    Raises:
        KeyError: ``kind`` is not one of ``TYPES``.
    """
    weight_type, file_type = TYPES[kind]
    reader = gguf.GGUFReader(source)
    # A name of its own until it is whole: another process may be at the same.
    partial = target.with_name(f"{target.name}.{os.getpid()}.part")
    writer = gguf.GGUFWriter(partial, _value(reader, "general.architecture"))
    copy_metadata(reader, writer, skip={"general.file_type", "general.quantization_version"})
    writer.add_file_type(file_type)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    shapes = {tensor.name: _plan(tensor, weight_type) for tensor in reader.tensors}
    for tensor in reader.tensors:
        kept, data_shape, size = shapes[tensor.name]
        dtype = np.dtype({"F32": np.float32, "F16": np.float16}.get(kept.name, np.uint8))
        writer.add_tensor_info(tensor.name, data_shape, dtype, size, raw_dtype=kept)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    # One tensor at a time: a model in F32 need not fit in memory.
    for tensor in reader.tensors:
        floats = dequantize(tensor.data, tensor.tensor_type)
        writer.write_tensor_data(quantize(floats, shapes[tensor.name][0]))
    writer.close()
    partial.replace(target)
    return target


def copy_metadata(reader: Any, writer: Any, *, skip: set[str] | frozenset[str] = frozenset()) -> None:
    """Copies every key from a ``gguf.GGUFReader`` to a ``gguf.GGUFWriter``, except those in ``skip``."""
    for field in reader.fields.values():
        # GGUF.*: the header, not keys. The architecture was given to the writer's constructor.
        if field.name.startswith("GGUF.") or field.name == "general.architecture" or field.name in skip:
            continue
        sub_type = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=sub_type)


def _value(reader: Any, key: str) -> Any:
    return reader.fields[key].contents()


def _plan(tensor: Any, wanted: Any) -> tuple[Any, tuple[int, ...], int]:
    """Type of a tensor in the copy, shape of its array (of bytes where quantised), and its size in bytes."""
    shape = tuple(int(n) for n in reversed(tensor.shape))
    block, block_bytes = gguf.GGML_QUANT_SIZES[wanted]
    if len(shape) < 2 or shape[-1] % block:
        return gguf.GGMLQuantizationType.F32, shape, 4 * int(np.prod(shape))
    size = int(np.prod(shape)) // block * block_bytes
    if block > 1:
        shape = (*shape[:-1], shape[-1] // block * block_bytes)
    return wanted, shape, size


def main() -> None:
    parser = argparse.ArgumentParser(description="Rewrite a GGUF file with all weights in one type.")
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--type", choices=sorted(TYPES), default="f32")
    args = parser.parse_args()
    print(requantize(args.source, args.target, args.type))


if __name__ == "__main__":
    main()
