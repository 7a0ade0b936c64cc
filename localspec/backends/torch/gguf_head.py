"""EAGLE-3 heads as GGUF files, which llama.cpp runs without torch."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from torch import Tensor

from localspec.backends.torch.checkpoint import read_checkpoint
from localspec.backends.torch.eagle_weights import EagleWeights, TargetShape, read_eagle
from localspec.errors import LocalspecError, ModelLoadError, UsageError
from localspec.hub.arrays import elements
from localspec.hub.header import Array, Header, read_header

ARCHITECTURE = "eagle3"
#: Types of weights, as llama.cpp's converter names them; vectors are always f32.
TYPES: Mapping[str, Any] = {
    "f32": gguf.GGMLQuantizationType.F32,
    "f16": gguf.GGMLQuantizationType.F16,
    "bf16": gguf.GGMLQuantizationType.BF16,
    "q8_0": gguf.GGMLQuantizationType.Q8_0,
}
_LAYERS = 3
_NO_GGUF = "Run it as it is: -md FOLDER, with pip install 'localspec[torch]'."


def convert_head(folder: Path, target: Path, out: Path, kind: str) -> None:
    """Writes the head in ``folder``, made for the model ``target``, to ``out``, its matrices as ``kind``.

    Raises:
        ModelLoadError: head or target cannot be read.
        UsageError: the head was made for another target, or llama.cpp has no form for it.
        LocalspecError: the file cannot be written.
    """
    head = read_eagle(read_checkpoint(folder), target_shape(target), folder.name)
    check_form(head, folder.name)
    write_head(out, head, target, folder.name, kind)


def target_shape(target: Path) -> TargetShape:
    """Raises `ModelLoadError`."""
    header = read_header(target)
    layers, width = header.number("{arch}.block_count"), header.number("{arch}.embedding_length")
    tokens = _tokens(header).count
    if layers is None or width is None:
        raise ModelLoadError(f"{target} does not say its size", hint="Name the head's target.")
    return TargetShape(target.name, layers, width, tokens)


def check_form(head: EagleWeights, name: str) -> None:
    """Raises `UsageError`: llama.cpp has no form for such a head."""
    for unfit, what in (
        (not head.is_third, "is an EAGLE-1 or -2 head"),
        (any(key.endswith(".bias") for key in head.weights), "has biases"),
        (head.norm_output, "carries its normed state on"),
        (head.is_third and len(head.reads) != _LAYERS, f"reads {len(head.reads)} layers"),
    ):
        if unfit:
            raise UsageError(f"{name} {what}: llama.cpp has no form for it", hint=_NO_GGUF)


def write_head(
    path: Path, head: EagleWeights, target: Path, name: str, kind: str, about: Mapping[str, str] | None = None
) -> None:
    """Writes an EAGLE-3 head for the model ``target``, whose tokenizer goes with it. ``about`` are further texts of
    metadata: where the head comes from. The file appears whole or not at all.

    Raises:
        LocalspecError: it cannot be written.
    """
    part = path.with_name(f"{path.name}.part")
    try:
        _write(part, head, target, name, TYPES[kind], about or {})
        os.replace(part, path)
    except OSError as error:
        raise LocalspecError(f"{path} cannot be written: {error.strerror or error}", hint="Check -o.") from None
    finally:
        with suppress(OSError):
            part.unlink()


def _write(part: Path, head: EagleWeights, target: Path, name: str, kind: Any, about: Mapping[str, str]) -> None:
    writer = gguf.GGUFWriter(part, ARCHITECTURE)
    try:
        _write_keys(writer, head, read_header(target), name)
        for key, text in about.items():
            writer.add_string(key, text)
        for key, weight in head.weights.items():
            values = _values(key, weight, head)
            fits = values.ndim == 2 and values.shape[1] % gguf.GGML_QUANT_SIZES[kind][0] == 0
            dtype = kind if fits else TYPES["f16" if values.ndim == 2 else "f32"]
            writer.add_tensor(key, gguf.quants.quantize(values, dtype), raw_dtype=dtype)
        if head.shape.factors is not None:
            writer.add_tensor("rope_freqs.weight", head.shape.factors.numpy())
        if head.ids is not None:
            writer.add_tensor("d2t", head.ids)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()


def _values(key: str, weight: Tensor, head: EagleWeights) -> Any:
    """In float32; rows of an unembedding beyond what is scored are left out."""
    if key == "output.weight" and head.ids is not None:
        weight = weight[: len(head.ids)]
    return np.ascontiguousarray(weight.to(torch.float32).numpy())


def _write_keys(writer: Any, head: EagleWeights, target: Header, name: str) -> None:
    shape = head.shape
    numbers: tuple[tuple[Callable[[Any], None], Any], ...] = (
        (writer.add_name, name),
        # Not the length it was trained with, which is short: heads are used beyond it.
        (writer.add_context_length, target.number("{arch}.context_length")),
        (writer.add_embedding_length, shape.width),
        (writer.add_block_count, shape.layers),
        (writer.add_vocab_size, _tokens(target).count),
        (writer.add_layer_norm_rms_eps, shape.eps),
        (writer.add_head_count, shape.heads),
        (writer.add_head_count_kv, shape.kv_heads),
        (writer.add_key_length, shape.each),
        (writer.add_value_length, shape.each),
        (writer.add_rope_dimension_count, shape.each),
        (writer.add_rope_freq_base, shape.rope_base),
        (writer.add_feed_forward_length, shape.inner),
    )
    for add, value in numbers:
        add(value)
    kinds = gguf.GGUFValueType
    writer.add_key_value(f"{ARCHITECTURE}.target_layers", list(head.reads), kinds.ARRAY, kinds.INT32)
    writer.add_uint32(f"{ARCHITECTURE}.target_hidden_size", head.target_width)
    writer.add_bool(f"{ARCHITECTURE}.norm_before_residual", head.norm_before_residual)
    writer.add_bool(f"{ARCHITECTURE}.norm_before_fc", "enc.output_norm.weight" in head.weights)
    for key, value in target.metadata.items():
        if key.startswith("tokenizer."):
            _copy_key(writer, key, value, target)


def _copy_key(writer: Any, key: str, value: Any, target: Header) -> None:
    if isinstance(value, Array):
        if value.count:
            found = elements(target, value)
            kinds = gguf.GGUFValueType
            writer.add_key_value(key, found.values, kinds.ARRAY, kinds(found.kind))
        return
    adders = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
    adders[type(value)](key, value)


def _tokens(header: Header) -> Array:
    """Raises `ModelLoadError`."""
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, Array):
        raise ModelLoadError(f"{header.path} is no language model with a tokenizer", hint="Name the head's target.")
    return tokens
