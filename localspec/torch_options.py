"""What of an engine's options torch can honour; the others are refused by name. Loads no torch."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from localspec.backends.options import CPU_ONLY, ModelOptions
from localspec.engine_options import EngineOptions
from localspec.errors import UsageError
from localspec.hub.header import read_header
from localspec.hub.shelf import parts

_LEAVE = "Leave it out, or use --backend llamacpp."


def check_torch_options(options: EngineOptions) -> None:
    """Raises `UsageError`: naming the first flag that is llama.cpp's alone."""
    target = options.target
    shared = (
        ("--exact", options.exact),
        ("--rpc", bool(options.rpc)),
        ("-fa", options.flash_attn != "auto"),
        ("--no-swa-full", not options.swa_full),
        ("-lm or --no-mmap", not target.mmap),
        ("--mlock", target.mlock),
        ("--check-tensors", target.check_tensors),
        ("--no-kv-offload", not target.kv_offload),
        ("--lora", bool(target.lora)),
    )
    _refuse(shared, "the target runs on torch")
    check_model(target, "", "the target runs on torch")
    if options.draft is not None:
        check_model(options.draft, "d", "the draft model runs on torch")


def check_model(options: ModelOptions, end: str, why: str) -> None:
    """What is asked of one model; ``end`` is that of the flags of a draft model.

    Raises:
        UsageError: naming the flag.
    """
    flags = (
        *own_flags(options, end),
        (f"-dev{end}", options.devices not in (None, (CPU_ONLY,))),
        ("-sm", options.split_mode is not None),
        ("-mg", options.main_gpu is not None),
        ("-ts", bool(options.tensor_split)),
        (f"-tb{end}", options.threads_batch not in (None, options.threads)),
    )
    _refuse(flags, why)


def own_flags(options: ModelOptions, end: str) -> tuple[tuple[str, bool], ...]:
    """Flags of one model's weights and cache that torch cannot honour, and whether they are given. The usual type of a
    cache stands for the one that torch has."""
    return (
        (f"-ctk{end}", options.cache_type_k not in ("f16", "f32")),
        (f"-ctv{end}", options.cache_type_v not in ("f16", "f32")),
        (f"-ot{end}", bool(options.tensor_overrides)),
        (f"-ncmoe{end}", bool(options.cpu_moe)),
    )


def _refuse(flags: Iterable[tuple[str, bool]], why: str) -> None:
    given = next((flag for flag, is_given in flags if is_given), None)
    if given is not None:
        raise UsageError(f"{given} is for llama.cpp, and {why}", hint=_LEAVE)


def count_weights(path: Path) -> int:
    """Of the model whose first file this is.

    Raises:
        ModelLoadError: it cannot be read.
    """
    return sum(tensor.elements for part in parts(path) for tensor in read_header(part).tensors)
