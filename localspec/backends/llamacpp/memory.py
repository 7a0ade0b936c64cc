"""Whether a cache can fit, asked before llama.cpp fills it with zeros and the system ends the process for it."""

from __future__ import annotations

from dataclasses import replace

from localspec.backends.llamacpp.model import LlamaModel
from localspec.backends.llamacpp.options import LlamaOptions


def cache_bytes(model: LlamaModel, options: LlamaOptions, layers: int | None = None) -> int:
    """Bytes of the key and value cache, by the file's metadata; an upper bound where layers differ. ``layers``: of so
    many, not of all."""
    n_ctx = options.n_ctx or model.n_ctx_train
    shape = model.cache_shape
    return (shape if layers is None else replace(shape, layers=layers)).size(
        n_ctx, options.cache_type_k, options.cache_type_v
    )
