"""Run as a module: what this build of llama.cpp is, and what it makes of the vocabularies of one or two files.

``python -m localspec.backends.llamacpp.probe [TARGET [DRAFT]]`` writes one JSON object a line, each as soon as it is
known, so that what was found out outlives a crash: ``{"library": …}``, ``{"target": …}``, ``{"draft": …}``,
``{"pairing": …}``. A process of its own, because a broken build may end it. No weights are read.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from localspec.backends.llamacpp.devices import Device
from localspec.backends.llamacpp.model import load_vocabulary
from localspec.backends.llamacpp.native import Native
from localspec.backends.llamacpp.selftest import remembered
from localspec.backends.llamacpp.vocab import LlamaVocab
from localspec.errors import LocalspecError
from localspec.vocab import alike, pair


def main(paths: Sequence[str]) -> None:
    native = Native()
    _say("library", library_record(native))
    vocabs = [_vocabulary(native, role, Path(path)) for role, path in zip(("target", "draft"), paths, strict=False)]
    match vocabs:
        case [LlamaVocab() as target, LlamaVocab() as draft]:
            _say("pairing", _pairing(target, draft, Path(paths[1]).name))


def _say(name: str, record: dict[str, Any]) -> None:
    print(json.dumps({name: record}), flush=True)


def library_record(native: Native) -> dict[str, Any]:
    """What the build is and which devices it sees, their memory in bytes."""

    def device(one: Device) -> dict[str, Any]:
        free, total = native.devices.memory(one.handle)
        about = native.devices.description(one.handle)
        return {"name": one.name, "description": about, "free": free, "total": total, "shared": one.shared}

    return {
        "path": native.library_path,
        "system": native.lib.llama_print_system_info().decode("utf-8", "replace"),
        "backends": _backends(native.lib._lib),
        "devices": [device(one) for one in native.devices.offload()],
        "extra_buffers": remembered(native),
    }


def _backends(library: Any) -> list[str]:
    """What ggml was built with: CPU, CUDA, RPC, …"""
    count, get, name = (library[f"ggml_backend_reg_{part}"] for part in ("count", "get", "name"))
    count.restype, get.restype, name.restype = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p
    get.argtypes, name.argtypes = [ctypes.c_size_t], [ctypes.c_void_p]
    return [name(get(i)).decode() for i in range(count())]


def _vocabulary(native: Native, role: str, path: Path) -> LlamaVocab | None:
    lib = native.lib
    try:
        handle = load_vocabulary(native, path)
    except LocalspecError as error:
        _say(role, {"error": [error.message, error.hint]})
        return None
    vocab = LlamaVocab(lib, lib.llama_model_get_vocab(handle))
    recurrent = bool(lib.llama_model_is_recurrent(handle) or lib.llama_model_is_hybrid(handle))
    _say(role, {"recurrent": recurrent, "tokenizer": vocab.kind, "tokens": vocab.n_tokens})
    return vocab


def _pairing(target: LlamaVocab, draft: LlamaVocab, name: str) -> dict[str, Any]:
    if (found := pair(target, draft)) is not None:
        return {"common": found.common, "barred": len(found.barred)}
    try:
        _, twins = alike(target, draft, draft_name=name)
    except LocalspecError as error:
        return {"error": [error.message, error.hint]}
    return {"translated": len(twins)}


if __name__ == "__main__":
    main(sys.argv[1:])
