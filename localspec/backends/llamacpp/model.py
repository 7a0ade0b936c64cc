"""Loading a GGUF file: progress, cancellation, and a reason when it fails."""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from localspec.backends.llamacpp.native import Native
from localspec.backends.llamacpp.vocab import LlamaVocab
from localspec.errors import Cancelled, ModelLoadError, OutOfMemory

#: Called with the share loaded, 0…1; returning False gives up.
Progress = Callable[[float], bool]

CACHE_TYPES = {
    "f32": 0,
    "f16": 1,
    "bf16": 30,
    "q8_0": 8,
    "q4_0": 2,
    "q4_1": 3,
    "iq4_nl": 20,
    "q5_0": 6,
    "q5_1": 7,
}


@dataclass(frozen=True, slots=True)
class LlamaOptions:
    """How one model is loaded and what its context looks like.

    ``n_ctx = 0`` takes the model's own length; ``gpu_layers = None`` leaves the choice to llama.cpp;
    ``threads = None`` is every core. ``sequences`` conversations and ``branches`` further tree branches share one
    cache; ``outputs`` rows of a pass may have logits. ``extra_buffers`` repacks weights for this CPU.
    """

    path: Path
    n_ctx: int = 0
    n_batch: int = 2048
    n_ubatch: int = 512
    gpu_layers: int | None = None
    threads: int | None = None
    threads_batch: int | None = None
    flash_attn: str = "auto"
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    sequences: int = 1
    branches: int = 31
    outputs: int = 32
    swa_full: bool = True
    extra_buffers: bool = True


class LlamaModel:
    """Weights and vocabulary of one file; contexts are made from it.

    Raises:
        ModelLoadError: the file is missing, damaged or not supported; the reason is llama.cpp's own.
        OutOfMemory: it does not fit.
        Cancelled: ``progress`` returned False.
    """

    def __init__(self, native: Native, options: LlamaOptions, progress: Progress | None = None) -> None:
        check_file(options.path)
        lib = native.lib
        params = lib.llama_model_default_params()
        if options.gpu_layers is not None:
            params.n_gpu_layers = options.gpu_layers
        params.use_extra_bufts = options.extra_buffers
        stopped: BaseException | None = None

        def on_progress(share: float, _data: object) -> bool:
            nonlocal stopped
            try:
                if progress is not None and not progress(share):
                    stopped = Cancelled(f"loading {options.path.name} was stopped")
            except BaseException as error:  # an interrupt too: ctypes would print it and go on
                stopped = error
            return stopped is None

        callback = lib.llama_progress_callback(on_progress)
        params.progress_callback = callback
        with native.log.captured() as lines:
            self.handle = lib.llama_model_load_from_file(os.fsencode(options.path), params)
        if stopped is not None:
            self.free()
            raise stopped
        if not self.handle:
            raise load_error(options.path, lines)
        self.path = options.path
        self.native = native
        self.vocab = LlamaVocab(lib, lib.llama_model_get_vocab(self.handle))

    @property
    def n_ctx_train(self) -> int:
        return int(self.native.lib.llama_model_n_ctx_train(self.handle))

    @property
    def n_layer(self) -> int:
        return int(self.native.lib.llama_model_n_layer(self.handle))

    @property
    def cache_widths(self) -> tuple[int, int]:
        """Numbers that one token puts into the key and the value cache of a layer."""
        lib = self.native.lib
        heads, heads_kv = lib.llama_model_n_head(self.handle), lib.llama_model_n_head_kv(self.handle)
        width = lib.llama_model_n_embd(self.handle) // max(heads, 1)
        architecture = self.metadata("general.architecture")
        lengths = (self.metadata(f"{architecture}.attention.{part}_length") for part in ("key", "value"))
        key, value = (int(length) if length else width for length in lengths)
        return key * heads_kv, value * heads_kv

    @property
    def n_swa(self) -> int:
        """Width of the sliding window; 0 where there is none."""
        return int(self.native.lib.llama_model_n_swa(self.handle))

    @property
    def is_recurrent(self) -> bool:
        """Whether the state of some layer cannot step back: recurrent and hybrid models."""
        lib = self.native.lib
        return bool(lib.llama_model_is_recurrent(self.handle) or lib.llama_model_is_hybrid(self.handle))

    @property
    def size(self) -> int:
        """Bytes of all weights."""
        return int(self.native.lib.llama_model_size(self.handle))

    @property
    def chat_template(self) -> str | None:
        raw: bytes | None = self.native.lib.llama_model_chat_template(self.handle, None)
        return raw.decode("utf-8", "replace") if raw else None

    def metadata(self, key: str) -> str | None:
        """A value of the file's metadata, as text."""
        buffer = ctypes.create_string_buffer(4096)
        n = self.native.lib.llama_model_meta_val_str(self.handle, key.encode(), buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace") if n >= 0 else None

    def free(self) -> None:
        if self.handle:
            self.native.lib.llama_model_free(self.handle)
            self.handle = None


def check_file(path: Path) -> None:
    """Says what is wrong with a path before native code meets it.

    Raises:
        ModelLoadError: no such file, a directory, unreadable, or not GGUF at all.
    """
    hint = "Check the path given to -m / -md."
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except FileNotFoundError:
        raise ModelLoadError(f"{path} does not exist", hint=hint) from None
    except IsADirectoryError:
        raise ModelLoadError(f"{path} is a folder, not a GGUF file", hint="Name the .gguf file in it.") from None
    except OSError as error:
        raise ModelLoadError(f"{path} cannot be read: {error.strerror}", hint=hint) from None
    if magic != b"GGUF":
        raise ModelLoadError(
            f"{path} is not a GGUF file (it starts with {magic!r})",
            hint="Download it again, or convert the model to GGUF first.",
        )


def load_error(path: Path, lines: list[tuple[int, str]]) -> ModelLoadError | OutOfMemory:
    """The error for a load that failed, with the reason llama.cpp logged."""
    said = [text.strip() for level, text in lines if level >= logging.ERROR and text.strip()]
    if any("alloc" in text or "out of memory" in text for text in said):
        return OutOfMemory(
            f"{path.name} does not fit into memory ({said[0]})",
            hint="Use a smaller quantisation or fewer -ngl layers.",
        )
    reason = said[0].split("error loading model: ")[-1] if said else "llama.cpp gave no reason"
    reason = reason.split(": ", 1)[-1] if reason.startswith(("llama_", "gguf_")) else reason
    return ModelLoadError(
        f"{path.name} cannot be loaded: {reason}",
        hint="The file is damaged or too new for this build: download it again or update localspec.",
    )
