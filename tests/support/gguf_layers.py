"""The first layers of a model as a model of their own: what it says is nonsense, and it says it soon."""

from __future__ import annotations

import os
from pathlib import Path

import gguf

from scripts.dequantize import copy_metadata


def first_layers(source: Path, target: Path, layers: int) -> Path:
    """Copies the model at ``source`` to ``target`` without what comes behind ``layers``. Returns ``target``."""
    reader = gguf.GGUFReader(source)
    architecture = str(reader.fields["general.architecture"].contents())
    # A name of its own until it is whole: another process may be at the same.
    partial = target.with_name(f"{target.name}.{os.getpid()}.part")
    writer = gguf.GGUFWriter(partial, architecture)
    copy_metadata(reader, writer, skip={f"{architecture}.block_count"})
    writer.add_block_count(layers)
    for tensor in reader.tensors:
        if _layer(tensor.name) < layers:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return partial.replace(target)


def _layer(name: str) -> int:
    """Of ``blk.7.ffn_up.weight``, 7; what belongs to no layer is kept with any number of them."""
    first, number, *_ = name.split(".")
    return int(number) if first == "blk" else -1
