"""From options to llama.cpp's own structures, and back from these to text."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from localspec.backends.llamacpp.devices import Device
from localspec.backends.llamacpp.native import Native
from localspec.backends.llamacpp.options import CACHE_TYPES, FLASH, LlamaOptions
from localspec.backends.llamacpp.overrides import Override, native_overrides
from localspec.errors import UsageError

_SPLIT_MODES = {"none": 0, "layer": 1, "row": 2}
_ROPE_SCALINGS = {None: -1, "none": 0, "linear": 1, "yarn": 2}
# LLAMA_LOAD_MODE_*, by (mmap, mlock). The first is "auto": mmap unless a device cannot.
_LOAD_MODES = {(True, False): -1, (False, False): 0, (False, True): 2, (True, True): 3}

Settings = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ModelParams:
    """``llama_model_params`` and what it points to: ``kept`` must live as long as the model."""

    struct: Any
    devices: tuple[Device, ...]
    kept: tuple[object, ...]


def model_params(native: Native, options: LlamaOptions) -> ModelParams:
    """Everything about weights.

    Raises:
        UsageError: devices or buffers that are not there, naming the flag.
    """
    params = native.lib.llama_model_default_params()
    chosen = native.devices.chosen(options.devices)
    _check_choice(options, chosen)
    if options.gpu_layers is not None:
        params.n_gpu_layers = options.gpu_layers
    if options.split_mode is not None:
        params.split_mode = _SPLIT_MODES[options.split_mode]
    if options.main_gpu is not None:
        params.main_gpu = options.main_gpu
    params.load_mode = _LOAD_MODES[options.mmap, options.mlock]
    params.use_extra_bufts = options.repack
    params.check_tensors = options.check_tensors
    params.load_mtp = options.predictors
    kept: list[object] = []
    if native.devices.needs_list(options.devices):
        # One more, which stays null: the end of the list.
        handles = (ctypes.c_void_p * (len(chosen) + 1))(*(one.handle for one in chosen))
        params.devices = ctypes.addressof(handles)
        kept.append(handles)
    overrides = native_overrides(options, native.devices, chosen)
    if overrides is not None:
        params.tensor_buft_overrides = ctypes.addressof(overrides)
        kept.append(overrides)
    if options.tensor_split:
        # llama.cpp reads that many, whatever there is.
        shares = (ctypes.c_float * native.lib.llama_max_devices())(*options.tensor_split)
        params.tensor_split = shares
        kept.append(shares)
    return ModelParams(params, tuple(chosen), tuple(kept))


def _check_choice(options: LlamaOptions, chosen: Sequence[Device]) -> None:
    """What llama.cpp would not say, or say in the middle of loading."""
    names = ", ".join(one.label for one in chosen)
    if not chosen:  # nothing to split; the caller says so
        return
    if len(options.tensor_split) > len(chosen):
        raise UsageError(
            f"-ts has {len(options.tensor_split)} shares for {len(chosen)} devices ({names})",
            hint="Give one share for each device, in this order.",
        )
    if options.tensor_split and sum(options.tensor_split) <= 0:
        raise UsageError("-ts shares out nothing", hint="Give at least one share above 0.")
    if options.main_gpu is not None and options.split_mode != "layer" and not options.main_gpu < len(chosen):
        raise UsageError(
            f"-mg {options.main_gpu}: there are {len(chosen)} devices ({names})", hint="They are counted from 0."
        )


def context_params(native: Native, options: LlamaOptions, n_ids: int) -> Any:
    """``llama_context_params`` for ``n_ids`` sequence ids, without callbacks."""
    # llama.cpp aborts where fewer rows may have logits than there are sequence ids.
    outputs = max(options.outputs, n_ids)
    params = native.lib.llama_context_default_params()
    params.n_ctx = options.n_ctx
    params.n_batch = max(options.n_batch, outputs)
    params.n_ubatch = min(options.n_ubatch, params.n_batch)
    params.n_seq_max = n_ids
    params.n_outputs_max = outputs
    params.flash_attn_type = FLASH[options.flash_attn]
    params.type_k = CACHE_TYPES[options.cache_type_k]
    params.type_v = CACHE_TYPES[options.cache_type_v]
    params.swa_full = options.swa_full
    params.offload_kqv = options.kv_offload
    params.kv_unified = True
    params.no_perf = True
    rope = options.rope
    params.rope_scaling_type = _ROPE_SCALINGS[rope.scaling]
    for field, value in (
        ("rope_freq_base", rope.freq_base),
        ("rope_freq_scale", rope.freq_scale),
        ("yarn_orig_ctx", rope.yarn_orig_ctx),
        ("yarn_ext_factor", rope.yarn_ext_factor),
        ("yarn_attn_factor", rope.yarn_attn_factor),
        ("yarn_beta_slow", rope.yarn_beta_slow),
        ("yarn_beta_fast", rope.yarn_beta_fast),
    ):
        if value is not None:
            setattr(params, field, value)
    return params


def model_settings(native: Native, params: Any, used: str) -> Settings:
    """What is in ``llama_model_params``, read from the structure itself; ``used`` are the devices llama.cpp chose where
    it was left to it."""
    shares = [params.tensor_split[i] for i in range(native.lib.llama_max_devices())] if params.tensor_split else []
    split = {number: name for name, number in _SPLIT_MODES.items()}.get(params.split_mode, str(params.split_mode))
    return (
        ("n_gpu_layers", "all" if params.n_gpu_layers < 0 else str(params.n_gpu_layers)),
        ("devices", _devices(native, params) if params.devices else used or "none"),
        ("split_mode", split),
        ("main_gpu", str(params.main_gpu)),
        ("tensor_split", ",".join(f"{share:g}" for share in _trimmed(shares)) or "by free memory"),
        ("tensor_overrides", _overrides(native, params)),
        ("load_mode", native.lib.llama_load_mode_name(params.load_mode).decode()),
        ("repack", _on(params.use_extra_bufts)),
        ("check_tensors", _on(params.check_tensors)),
        ("load_mtp", _on(params.load_mtp)),
    )


def _trimmed(shares: list[float]) -> list[float]:
    """Without the zeros at the end, which fill the array up."""
    while shares and not shares[-1]:
        shares.pop()
    return shares


def _devices(native: Native, params: Any) -> str:
    handles = ctypes.cast(params.devices, ctypes.POINTER(ctypes.c_void_p))
    names: list[str] = []
    while (handle := handles[len(names)]) is not None:
        names.append(native.devices.name(handle))
    return ",".join(names) or "none"


def _overrides(native: Native, params: Any) -> str:
    if not params.tensor_buft_overrides:
        return "none"
    entries = ctypes.cast(params.tensor_buft_overrides, ctypes.POINTER(Override))
    found: list[str] = []
    while (pattern := entries[len(found)].pattern) is not None:
        found.append(f"{pattern.decode()}={native.devices.buffer_name(entries[len(found)].buffer_type)}")
    return ",".join(found)


def context_settings(native: Native, params: Any, handle: Any) -> Settings:
    """What is in ``llama_context_params``, and sizes as the context itself has them."""
    lib = native.lib
    cache_types = {number: name for name, number in CACHE_TYPES.items()}
    scalings = {number: name or "model's own" for name, number in _ROPE_SCALINGS.items()}
    return (
        ("n_ctx", str(lib.llama_n_ctx(handle))),
        ("n_batch", str(lib.llama_n_batch(handle))),
        ("n_ubatch", str(lib.llama_n_ubatch(handle))),
        ("n_seq_max", str(lib.llama_n_seq_max(handle))),
        ("n_outputs_max", str(params.n_outputs_max)),
        ("n_threads", str(lib.llama_n_threads(handle))),
        ("n_threads_batch", str(lib.llama_n_threads_batch(handle))),
        ("flash_attn", {number: name for name, number in FLASH.items()}[params.flash_attn_type]),
        ("cache_type_k", cache_types[params.type_k]),
        ("cache_type_v", cache_types[params.type_v]),
        ("kv_offload", _on(params.offload_kqv)),
        ("swa_full", _on(params.swa_full)),
        ("rope_scaling", scalings[params.rope_scaling_type]),
        ("rope_freq_base", _own(params.rope_freq_base, params.rope_freq_base == 0)),
        ("rope_freq_scale", _own(params.rope_freq_scale, params.rope_freq_scale == 0)),
        ("yarn_orig_ctx", _own(params.yarn_orig_ctx, params.yarn_orig_ctx == 0)),
        ("yarn_ext_factor", _own(params.yarn_ext_factor, params.yarn_ext_factor < 0)),
        ("yarn_attn_factor", _own(params.yarn_attn_factor, params.yarn_attn_factor < 0)),
        ("yarn_beta_slow", _own(params.yarn_beta_slow, params.yarn_beta_slow < 0)),
        ("yarn_beta_fast", _own(params.yarn_beta_fast, params.yarn_beta_fast < 0)),
    )


def _own(value: float, unset: bool) -> str:
    return "model's own" if unset else f"{value:g}"


def _on(value: bool) -> str:
    return "on" if value else "off"
