"""Making a context: its room is checked first, and a failure gets its reason."""

from __future__ import annotations

import ctypes
import logging
from typing import Any

from localspec.backends.llamacpp.memory import cache_bytes
from localspec.backends.llamacpp.model import LlamaModel
from localspec.backends.llamacpp.native import InterruptFlag
from localspec.backends.llamacpp.options import LlamaOptions
from localspec.backends.llamacpp.params import Settings, context_params, context_settings
from localspec.backends.llamacpp.placement import flash_attention, window_cache
from localspec.backends.memory import ROOM, available_bytes
from localspec.control.threads import core_count
from localspec.errors import OutOfMemory, UsageError

_WHOLE, _PREDICTORS = 0, 1  # LLAMA_CONTEXT_TYPE_*


class LlamaContext:
    """``handle`` is llama.cpp's; ``lines`` what it logged while it made the context. ``other`` is the context of a
    target that this one, a head's, shares weights with: it has to live longer. ``predictors``: it runs the model's
    layers for multi-token prediction, and no others.

    Raises:
        UsageError: an option that this model or build cannot honour.
        OutOfMemory: the cache or the buffers do not fit.
    """

    def __init__(
        self,
        model: LlamaModel,
        options: LlamaOptions,
        n_ids: int,
        flag: InterruptFlag,
        other: Any = None,
        *,
        predictors: bool = False,
    ) -> None:
        check_room(model, options, model.predictors if predictors else None)
        lib = model.native.lib
        params = context_params(model.native, options, n_ids)
        params.n_threads = options.threads or core_count()
        params.n_threads_batch = options.threads_batch or params.n_threads
        params.abort_callback = flag.callback
        params.abort_callback_data = flag.data
        params.ctx_other = other
        params.ctx_type = _PREDICTORS if predictors else _WHOLE
        with model.native.log.captured() as lines:
            self.handle: Any = lib.llama_init_from_model(model.handle, params)
        if not self.handle:
            raise _failure(model, params, [text.strip() for level, text in lines if level >= logging.ERROR])
        self.lines = lines
        self._params = params
        self._model = model
        self._adapt()

    def _adapt(self) -> None:
        """Puts the model's adapters into effect, which is a matter of each context."""
        adapters = self._model.adapters
        if adapters:
            handles = (self._model.native.lib.llama_adapter_lora_p_ctypes * len(adapters))(
                *(one.handle for one in adapters)
            )
            scales = (ctypes.c_float * len(adapters))(*(one.scale for one in adapters))
            self._model.native.lib.llama_set_adapters_lora(self.handle, handles, len(adapters), scales)

    def settings(self) -> Settings:
        """What reached llama.cpp, by name."""
        native = context_settings(self._model.native, self._params, self.handle)
        attention = dict(native)["flash_attn"]
        became = {
            "flash_attn": flash_attention(self.lines) if attention == "auto" else None,
            "swa_full": window_cache(self.lines),
        }
        return tuple((name, f"{text} ({more})" if (more := became.get(name)) else text) for name, text in native)


def check_room(model: LlamaModel, options: LlamaOptions, layers: int | None = None) -> None:
    """llama.cpp fills a cache with zeros when it makes it: too large a one ends the process, without a word.

    Layers on other devices keep their part of the cache there, where too large a one is an error like others. So many
    ``layers`` have one, ``None``: all.
    """
    share = model.cpu_share if options.kv_offload else 1.0
    wanted, there = share * cache_bytes(model, options, layers), available_bytes()
    if there is not None and wanted > ROOM * there:
        raise OutOfMemory(
            f"a context of {options.n_ctx or model.n_ctx_train} tokens of {model.path.name} needs"
            f" {wanted / 1e9:.1f} GB, {there / 1e9:.1f} GB are free",
            hint="Use a smaller -c, or a smaller cache type (-ctk, -ctv).",
        )


def _failure(model: LlamaModel, params: Any, said: list[str]) -> UsageError | OutOfMemory:
    if any("quantized V cache" in text for text in said):
        return UsageError("a quantised value cache (-ctv) needs flash attention", hint="Use -fa on, or -ctv f16.")
    unfit = next((text for text in said if "does not divide" in text or "different K" in text), None)
    if unfit is not None:
        return UsageError(
            f"{model.path.name} cannot have such a cache: {unfit.split(': ', 1)[-1]}",
            hint="Use another -ctk and -ctv, such as f16 for both.",
        )
    return OutOfMemory(
        f"no room for a context of {params.n_ctx or model.n_ctx_train} tokens of {model.path.name}"
        + (f" ({said[0]})" if said else ""),
        hint="Use a smaller -c, -b or --spec-tree-nodes.",
    )
