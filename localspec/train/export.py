"""A trained head as a GGUF file that llama.cpp loads."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from torch import Tensor

from localspec.train.eagle3 import HeadShape

_BLOCK = "blk.0."
_OUTSIDE = ("fc", "output_norm", "output")
#: Rows shorter than this many blocks of a quantised type stay as they are.
_TYPES = {
    "f32": gguf.GGMLQuantizationType.F32,
    "f16": gguf.GGMLQuantizationType.F16,
    "q8_0": gguf.GGMLQuantizationType.Q8_0,
}


def write_head(
    path: Path,
    shape: HeadShape,
    weights: Mapping[str, Tensor],
    target: Path,
    *,
    kind: str = "q8_0",
    about: Mapping[str, str] | None = None,
) -> None:
    """Writes ``weights`` (as `Eagle3` names them) as a head for the model ``target``, whose tokenizer goes with it.

    ``about`` are further texts of metadata: where the head comes from. The file appears whole or not at all.
    """
    part = path.with_suffix(".part")
    writer = gguf.GGUFWriter(part, "eagle3")
    reader = gguf.GGUFReader(target)
    try:
        _write_keys(writer, shape, reader, about or {})
        for name, weight in weights.items():
            values = np.ascontiguousarray(weight.detach().numpy(), np.float32)
            dtype = _TYPES[kind] if values.ndim == 2 else _TYPES["f32"]
            full = name if name in _OUTSIDE else _BLOCK + name
            writer.add_tensor(f"{full}.weight", gguf.quants.quantize(values, dtype), raw_dtype=dtype)
        writer.add_tensor("d2t", np.array(shape.ids, np.int64))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()
    os.replace(part, path)


def _write_keys(writer: Any, shape: HeadShape, reader: Any, about: Mapping[str, str]) -> None:
    architecture = reader.fields["general.architecture"].contents()
    name = reader.fields.get("general.name")
    writer.add_name(f"EAGLE-3 head for {name.contents() if name else architecture}")
    writer.add_context_length(int(reader.fields[f"{architecture}.context_length"].contents()))
    writer.add_embedding_length(shape.width)
    writer.add_block_count(1)
    writer.add_vocab_size(len(reader.fields["tokenizer.ggml.tokens"].data))
    writer.add_layer_norm_rms_eps(shape.eps)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.each)
    writer.add_value_length(shape.each)
    writer.add_rope_dimension_count(shape.each)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_feed_forward_length(shape.inner)
    kinds = gguf.GGUFValueType
    writer.add_key_value("eagle3.target_layers", list(shape.layers), kinds.ARRAY, kinds.INT32)
    width = int(reader.fields[f"{architecture}.embedding_length"].contents())
    writer.add_uint32("eagle3.target_hidden_size", width)
    for key, text in about.items():
        writer.add_string(key, text)
    for key, found in reader.fields.items():
        if key.startswith("tokenizer."):
            element = found.types[1] if len(found.types) > 1 else None
            writer.add_key_value(key, found.contents(), found.types[0], sub_type=element)
