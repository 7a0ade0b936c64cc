"""Decoders built like llama's as GGUF files: written for llama.cpp, and read back."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from localspec.backends.torch.sizes import Sizes
from localspec.backends.torch.tensors import gguf_tensors
from localspec.errors import LocalspecError, ModelLoadError
from localspec.hub.arrays import elements
from localspec.hub.header import Array, Header, read_header
from localspec.hub.names import parts_of

#: Types of matrices, as llama.cpp's converter names them; vectors are always f32.
TYPES: Mapping[str, Any] = {
    "f32": gguf.GGMLQuantizationType.F32,
    "f16": gguf.GGMLQuantizationType.F16,
    "bf16": gguf.GGMLQuantizationType.BF16,
    "q8_0": gguf.GGMLQuantizationType.Q8_0,
}
#: Adds metadata to a writer.
Keys = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class Stored:
    """What a file holds; ``tensors`` are in float32, but for those of integers."""

    header: Header
    sizes: Sizes
    n_vocab: int
    tensors: dict[str, Tensor]


# Reading


def read_gguf(path: Path, architecture: str, hint: str) -> Stored:
    """Reads a decoder of this architecture; ``hint`` tells what to do about another.

    Raises:
        ModelLoadError: the file cannot be read, or is of another architecture.
    """
    header, sizes, n_vocab = read_sizes(path, (architecture,), hint)
    return Stored(header, sizes, n_vocab, gguf_tensors(path))


def read_sizes(path: Path, known: Iterable[str], hint: str) -> tuple[Header, Sizes, int]:
    """What is known of a decoder, of one of the architectures ``known``, without its tensors: header, sizes, and how
    many tokens it has. As `read_gguf`."""
    header = read_header(path.parent / parts_of(path.name)[0])
    *others, last = known
    if header.architecture not in (*others, last):
        names = f"{', '.join(others)} or {last}" if others else last
        raise ModelLoadError(f"{path.name} is of the architecture {header.architecture}, not {names}", hint=hint)
    try:
        return header, _sizes(header), tokens_of(header).count
    except KeyError as error:
        raise ModelLoadError(f"{path.name} does not say its {error.args[0]}", hint=hint) from None
    except TypeError:
        raise ModelLoadError(f"the layers of {path.name} are of different sizes", hint=hint) from None


def tokens_of(header: Header) -> Array:
    """Raises `ModelLoadError`."""
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, Array):
        raise ModelLoadError(
            f"{header.path} is no language model with a tokenizer", hint="Use a model that llama.cpp can run by itself."
        )
    return tokens


def _sizes(header: Header) -> Sizes:
    """Raises `KeyError`: it is not said; `TypeError`: layers, or keys and values, differ."""
    found = {
        key.partition(".")[2]: value
        for key, value in header.metadata.items()
        if key.startswith(f"{header.architecture}.")
    }
    width, heads = int(found["embedding_length"]), int(found["attention.head_count"])
    each = int(found.get("attention.key_length", width // heads))
    if each != int(found.get("attention.value_length", each)):
        raise TypeError
    return Sizes(
        layers=int(found["block_count"]),
        width=width,
        heads=heads,
        kv_heads=int(found.get("attention.head_count_kv", heads)),
        each=each,
        inner=int(found["feed_forward_length"]),
        eps=float(found["attention.layer_norm_rms_epsilon"]),
        rope_base=float(found.get("rope.freq_base", 10000.0)),
    )


# Writing


def write_gguf(
    path: Path,
    architecture: str,
    sizes: Sizes,
    tensors: Mapping[str, Tensor | NDArray[Any]],
    target: Path,
    *,
    name: str,
    outtype: str,
    about: Mapping[str, str],
    keys: Keys = lambda writer: None,
) -> None:
    """Writes a drafter for the model ``target``, whose tokenizer and context it gets. The file appears whole or not at
    all.

    Args:
        tensors: by their names in the file; matrices become ``outtype``, where their rows fit its blocks.
        name: what the drafter is called.
        about: further texts of metadata: where it comes from.
        keys: adds further metadata.

    Raises:
        ModelLoadError: the target cannot be read.
        LocalspecError: the file cannot be written.
    """
    part = path.with_name(f"{path.name}.part")
    try:
        writer = gguf.GGUFWriter(part, architecture)
        try:
            _write_keys(writer, sizes, read_header(target), name)
            keys(writer)
            for key, text in about.items():
                writer.add_string(key, text)
            for key, weights in tensors.items():
                _write_tensor(writer, key, weights, TYPES[outtype])
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
        finally:
            writer.close()
        os.replace(part, path)
    except OSError as error:
        raise LocalspecError(f"{path} cannot be written: {error.strerror or error}", hint="Check -o.") from None
    finally:
        with suppress(OSError):
            part.unlink()


def _write_tensor(writer: Any, key: str, weights: Tensor | NDArray[Any], kind: Any) -> None:
    if not isinstance(weights, Tensor):
        writer.add_tensor(key, weights)
        return
    values = np.ascontiguousarray(weights.detach().to(torch.float32).numpy())
    fits = values.ndim == 2 and values.shape[1] % gguf.GGML_QUANT_SIZES[kind][0] == 0
    dtype = kind if fits else TYPES["f16" if values.ndim == 2 else "f32"]
    writer.add_tensor(key, gguf.quants.quantize(values, dtype), raw_dtype=dtype)


def _write_keys(writer: Any, sizes: Sizes, target: Header, name: str) -> None:
    numbers: tuple[tuple[Callable[[Any], None], Any], ...] = (
        (writer.add_name, name),
        # Not the length it was trained with, which is short: drafters are used beyond it.
        (writer.add_context_length, target.number("{arch}.context_length")),
        (writer.add_embedding_length, sizes.width),
        (writer.add_block_count, sizes.layers),
        (writer.add_vocab_size, tokens_of(target).count),
        (writer.add_layer_norm_rms_eps, sizes.eps),
        (writer.add_head_count, sizes.heads),
        (writer.add_head_count_kv, sizes.kv_heads),
        (writer.add_key_length, sizes.each),
        (writer.add_value_length, sizes.each),
        (writer.add_rope_dimension_count, sizes.each),
        (writer.add_rope_freq_base, sizes.rope_base),
        (writer.add_feed_forward_length, sizes.inner),
    )
    for add, value in numbers:
        add(value)
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
