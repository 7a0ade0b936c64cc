"""LoRA adapters: small files that change a model's weights while it runs."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec.backends.llamacpp.native import Native
from localspec.errors import ModelLoadError

_HINT = "Use an adapter that was made for this very model (GGUF, by llama.cpp's convert_lora_to_gguf.py)."


@dataclass(frozen=True, slots=True)
class Adapter:
    """``handle`` is llama.cpp's; the model frees it with itself."""

    path: Path
    scale: float
    handle: Any


def load_adapter(native: Native, model: Any, path: Path, scale: float) -> Adapter:
    """Reads one adapter for ``model`` (llama.cpp's handle). Contexts made later have room for it.

    Raises:
        ModelLoadError: it is no adapter, or one for another model; the reason is llama.cpp's own.
    """
    with native.log.captured() as lines:
        handle = native.lib.llama_adapter_lora_init(model, os.fsencode(path))
    if not handle:
        said = [text.strip() for level, text in lines if level >= logging.ERROR and text.strip()]
        why = said[-1].split("failed to apply lora adapter: ")[-1] if said else "llama.cpp gave no reason"
        raise ModelLoadError(f"the adapter {path.name} does not fit this model: {why}", hint=_HINT)
    if native.lib.llama_adapter_get_alora_n_invocation_tokens(handle):
        raise ModelLoadError(
            f"the adapter {path.name} is to act from certain words on, and localspec applies adapters from the start",
            hint="Use an adapter without invocation tokens.",
        )
    return Adapter(path, scale, handle)
