"""Whether a cache can fit, asked before llama.cpp fills it with zeros and the system ends the process for it."""

from __future__ import annotations

from pathlib import Path

from localspec.backends.llamacpp.model import LlamaModel
from localspec.backends.llamacpp.options import LlamaOptions

#: Bytes of one cached number, by cache type; block types as bytes per block over numbers per block.
_BYTES = {
    "f32": 4.0,
    "f16": 2.0,
    "bf16": 2.0,
    "q8_0": 34 / 32,
    "q4_0": 18 / 32,
    "q4_1": 20 / 32,
    "iq4_nl": 18 / 32,
    "q5_0": 22 / 32,
    "q5_1": 24 / 32,
}


def cache_bytes(model: LlamaModel, options: LlamaOptions) -> int:
    """Bytes of the key and value cache, by the file's metadata; an upper bound where layers differ."""
    key, value = model.cache_widths
    n_ctx = options.n_ctx or model.n_ctx_train
    per_token = key * _BYTES[options.cache_type_k] + value * _BYTES[options.cache_type_v]
    return int(n_ctx * model.n_layer * per_token)


def available_bytes() -> int | None:
    """Memory that can be had without swapping; ``None`` where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = next((line for line in lines if line.startswith("MemAvailable:")), None)
    return int(found.split()[1]) * 1024 if found else None
