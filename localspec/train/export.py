"""Trained drafters as GGUF files that llama.cpp loads, and read back to go on from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from torch import Tensor

from localspec.backends.torch.llama import Shape
from localspec.errors import ModelLoadError
from localspec.train.eagle3 import HeadShape

_BLOCK = "blk.0."
_OUTSIDE = ("fc", "output_norm", "output")
_TYPES = {
    "f32": gguf.GGMLQuantizationType.F32,
    "f16": gguf.GGMLQuantizationType.F16,
    "q8_0": gguf.GGMLQuantizationType.Q8_0,
}
FORMS = tuple(_TYPES)


def write_head(
    path: Path,
    shape: HeadShape,
    weights: Mapping[str, Tensor],
    target: Path,
    *,
    form: str = "q8_0",
    about: Mapping[str, str] | None = None,
) -> None:
    """Writes ``weights`` (as `Eagle3` names them) as a head for the model ``target``, whose tokenizer goes with it.

    ``about`` are further texts of metadata: where the head comes from. The file appears whole or not at all.
    """
    reader = gguf.GGUFReader(target)
    keys = {
        "eagle3.target_layers": list(shape.layers),
        "eagle3.target_hidden_size": int(_value(reader, f"{_architecture(reader)}.embedding_length")),
    }
    named = {f"{name if name in _OUTSIDE else _BLOCK + name}.weight": weight for name, weight in weights.items()}
    named["d2t"] = torch.tensor(shape.ids)
    _write(path, "eagle3", "EAGLE-3 head", _sizes(shape, 1), keys, named, reader, form, about or {})


def write_small(
    path: Path,
    shape: Shape,
    weights: Mapping[str, Tensor],
    target: Path,
    *,
    form: str = "q8_0",
    about: Mapping[str, str] | None = None,
) -> None:
    """As `write_head`, a draft model with weights as `Small` names them."""
    named = {f"{name}.weight": weight for name, weight in weights.items()}
    reader = gguf.GGUFReader(target)
    _write(path, "llama", "Draft model", _sizes(shape, shape.layers), {}, named, reader, form, about or {})


def read_head(path: Path) -> tuple[HeadShape, dict[str, Tensor]]:
    """The shape and weights of a head that `write_head` wrote.

    Raises:
        ModelLoadError: the file holds something else.
    """
    reader = _reader(path, "eagle3")
    tensors = {one.name: one for one in reader.tensors}
    ids = tuple(tensors.pop("d2t").data.tolist()) if "d2t" in tensors else tuple(range(_tokens(reader)))
    weights = {name.removeprefix(_BLOCK).removesuffix(".weight"): _dequantised(one) for name, one in tensors.items()}
    layers = tuple(int(one) for one in _value(reader, "eagle3.target_layers"))
    if len(layers) != 3 or "output" not in weights:
        raise ModelLoadError(f"{path.name} is a head of another layout", hint="Begin without --from.")
    return HeadShape(layers=layers, ids=ids, **_common(reader, "eagle3")), weights


def read_small(path: Path) -> tuple[Shape, dict[str, Tensor]]:
    """The shape and weights of a draft model that `write_small` wrote.

    Raises:
        ModelLoadError: the file holds something else.
    """
    reader = _reader(path, "llama")
    weights = {one.name.removesuffix(".weight"): _dequantised(one) for one in reader.tensors}
    if "output" in weights:
        raise ModelLoadError(f"{path.name} has a table of scores of its own", hint="Begin without --from.")
    layers = int(_value(reader, "llama.block_count"))
    return Shape(layers=layers, n_vocab=_tokens(reader), **_common(reader, "llama")), weights


# Writing


def _write(
    path: Path,
    architecture: str,
    what: str,
    sizes: Mapping[str, int | float],
    keys: Mapping[str, Any],
    weights: Mapping[str, Tensor],
    reader: Any,
    form: str,
    about: Mapping[str, str],
) -> None:
    part = path.with_name(f"{path.name}.part")
    writer = gguf.GGUFWriter(part, architecture)
    try:
        _write_keys(writer, architecture, what, sizes, keys, reader)
        for key, text in about.items():
            writer.add_string(key, text)
        for name, weight in weights.items():
            if not weight.is_floating_point():
                writer.add_tensor(name, weight.numpy().astype(np.int64))
                continue
            values = np.ascontiguousarray(weight.detach().numpy(), np.float32)
            dtype = _TYPES[form] if values.ndim == 2 else _TYPES["f32"]
            writer.add_tensor(name, gguf.quants.quantize(values, dtype), raw_dtype=dtype)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()
    os.replace(part, path)


def _write_keys(
    writer: Any, architecture: str, what: str, sizes: Mapping[str, Any], keys: Mapping[str, Any], reader: Any
) -> None:
    target = _architecture(reader)
    writer.add_name(f"{what} for {_value(reader, 'general.name', target)}")
    writer.add_context_length(int(_value(reader, f"{target}.context_length")))
    writer.add_vocab_size(_tokens(reader))
    for key, value in sizes.items():
        add = writer.add_float32 if isinstance(value, float) else writer.add_uint32
        add(f"{architecture}.{key}", value)
    kinds = gguf.GGUFValueType
    for key, value in keys.items():
        if isinstance(value, list):
            writer.add_key_value(key, value, kinds.ARRAY, kinds.INT32)
        else:
            writer.add_uint32(key, value)
    for key, found in reader.fields.items():
        if key.startswith("tokenizer."):
            element = found.types[1] if len(found.types) > 1 else None
            writer.add_key_value(key, found.contents(), found.types[0], sub_type=element)


def _sizes(shape: HeadShape | Shape, layers: int) -> dict[str, int | float]:
    return {
        "block_count": layers,
        "embedding_length": shape.width,
        "feed_forward_length": shape.inner,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.kv_heads,
        "attention.key_length": shape.each,
        "attention.value_length": shape.each,
        "attention.layer_norm_rms_epsilon": float(shape.eps),
        "rope.dimension_count": shape.each,
        "rope.freq_base": float(shape.rope_base),
    }


# Reading


def _common(reader: Any, architecture: str) -> dict[str, Any]:
    def of(key: str) -> Any:
        return _value(reader, f"{architecture}.{key}")

    return {
        "width": int(of("embedding_length")),
        "inner": int(of("feed_forward_length")),
        "heads": int(of("attention.head_count")),
        "kv_heads": int(of("attention.head_count_kv")),
        "each": int(of("attention.key_length")),
        "eps": float(of("attention.layer_norm_rms_epsilon")),
        "rope_base": float(of("rope.freq_base")),
    }


def _reader(path: Path, architecture: str) -> Any:
    try:
        reader = gguf.GGUFReader(path)
        found = _architecture(reader)
    except (OSError, ValueError, KeyError) as error:
        raise ModelLoadError(f"{path} cannot be read: {error}", hint="Check the path given to --from.") from None
    if found != architecture:
        raise ModelLoadError(
            f"{path.name} is of the architecture {found}, not {architecture}", hint="Check the path given to --from."
        )
    return reader


def _architecture(reader: Any) -> str:
    return str(reader.fields["general.architecture"].contents())


def _value(reader: Any, key: str, default: Any = None) -> Any:
    found = reader.fields.get(key)
    return default if found is None else found.contents()


def _tokens(reader: Any) -> int:
    return len(reader.fields["tokenizer.ggml.tokens"].data)


def _dequantised(tensor: Any) -> Tensor:
    return torch.from_numpy(np.array(gguf.quants.dequantize(tensor.data, tensor.tensor_type), np.float32))
