"""EAGLE-3 heads as GGUF files, which llama.cpp runs without torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from localspec.backends.torch.checkpoint import read_checkpoint
from localspec.backends.torch.eagle_weights import EagleWeights, HeadShape, TargetShape, read_eagle
from localspec.backends.torch.gguf_file import read_gguf, tokens_of, write_gguf
from localspec.errors import ModelLoadError, UsageError
from localspec.hub.arrays import elements
from localspec.hub.header import Array, read_header

ARCHITECTURE = "eagle3"
_LAYERS = 3
_NO_GGUF = "Run it as it is: -md FOLDER, with pip install 'localspec[torch]'."


def convert_head(folder: Path, target: Path, out: Path, outtype: str) -> None:
    """Writes the head in ``folder``, made for the model ``target``, to ``out``, its matrices as ``outtype``.

    Raises:
        ModelLoadError: head or target cannot be read.
        UsageError: the head was made for another target, or llama.cpp has no form for it.
        LocalspecError: the file cannot be written.
    """
    head = read_eagle(read_checkpoint(folder), target_shape(target), folder.name)
    check_form(head, folder.name)
    write_head(out, head, target, folder.name, outtype, {})


def target_shape(target: Path) -> TargetShape:
    """Raises `ModelLoadError`."""
    header = read_header(target)
    layers, width = header.number("{arch}.block_count"), header.number("{arch}.embedding_length")
    tokens = tokens_of(header).count
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


def write_head(path: Path, head: EagleWeights, target: Path, name: str, outtype: str, about: Mapping[str, str]) -> None:
    """Writes an EAGLE-3 head for the model ``target``; arguments and errors are those of `write_gguf`."""

    def keys(writer: Any) -> None:
        kinds = gguf.GGUFValueType
        writer.add_key_value(f"{ARCHITECTURE}.target_layers", list(head.reads), kinds.ARRAY, kinds.INT32)
        writer.add_uint32(f"{ARCHITECTURE}.target_hidden_size", head.target_width)
        writer.add_bool(f"{ARCHITECTURE}.norm_before_residual", head.norm_before_residual)
        writer.add_bool(f"{ARCHITECTURE}.norm_before_fc", "enc.output_norm.weight" in head.weights)

    tensors = _tensors(head)
    write_gguf(path, ARCHITECTURE, head.shape, tensors, target, name=name, outtype=outtype, about=about, keys=keys)


def _tensors(head: EagleWeights) -> dict[str, Tensor | NDArray[Any]]:
    """By their names in the file; rows of an unembedding beyond what is scored are left out."""
    found: dict[str, Tensor | NDArray[Any]] = dict(head.weights)
    if head.ids is not None and "output.weight" in found:
        found["output.weight"] = found["output.weight"][: len(head.ids)]
    if head.shape.factors is not None:
        found["rope_freqs.weight"] = head.shape.factors
    if head.ids is not None:
        found["d2t"] = head.ids
    return found


def read_head(path: Path, hint: str) -> EagleWeights:
    """Reads a head that `write_head` wrote, in float32; ``hint`` tells what to do where it is none.

    Raises:
        ModelLoadError: the file cannot be read, or holds something else.
    """
    found = read_gguf(path, ARCHITECTURE, hint)
    metadata, tensors = found.header.metadata, found.tensors
    layers, width = (metadata.get(f"{ARCHITECTURE}.{key}") for key in ("target_layers", "target_hidden_size"))
    if not isinstance(layers, Array) or not isinstance(width, int):
        raise ModelLoadError(f"{path.name} does not say what it reads of its target", hint=hint)
    ids, factors = tensors.pop("d2t", None), tensors.pop("rope_freqs.weight", None)
    return EagleWeights(
        shape=HeadShape.like(found.sizes, factors=factors),
        weights=tensors,
        reads=tuple(elements(found.header, layers).values),
        target_width=width,
        n_ctx_train=found.header.number("{arch}.context_length") or 0,
        ids=None if ids is None else ids.numpy().astype(np.int64),
        norm_before_residual=bool(metadata.get(f"{ARCHITECTURE}.norm_before_residual")),
    )
