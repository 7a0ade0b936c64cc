"""Loading a GGUF file: progress, cancellation, and a reason when it fails."""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from localspec.backends.llamacpp.adapters import Adapter, load_adapter
from localspec.backends.llamacpp.devices import BufferType, Device
from localspec.backends.llamacpp.hooks import HOOKED
from localspec.backends.llamacpp.native import Line, Native
from localspec.backends.llamacpp.options import LlamaOptions
from localspec.backends.llamacpp.overrides import idle_overrides
from localspec.backends.llamacpp.params import Settings, model_params, model_settings
from localspec.backends.llamacpp.placement import layers_by_device, used_devices
from localspec.backends.llamacpp.vocab import LlamaVocab
from localspec.backends.memory import CacheShape
from localspec.backends.predicting import PREDICTING
from localspec.errors import Cancelled, LocalspecError, ModelLoadError, OutOfMemory, UsageError

#: Called with the share loaded, 0…1; returning False gives up.
Progress = Callable[[float], bool]


class LlamaModel:
    """Weights, vocabulary and adapters of one model; contexts are made from it.

    ``lines`` is what llama.cpp logged while it loaded; ``warnings`` are lines for the user.

    Raises:
        UsageError: a device or a buffer that is not there, or that cannot do what is asked of it.
        ModelLoadError: the file is missing, damaged or not supported; the reason is llama.cpp's own.
        OutOfMemory: it does not fit.
        Cancelled: ``progress`` returned False.
    """

    def __init__(self, native: Native, options: LlamaOptions, progress: Progress | None = None) -> None:
        check_file(options.path)
        for path, _ in options.lora:
            check_file(path, "--lora")
        lib = native.lib
        self.path = options.path
        self.native = native
        self.handle = None
        self.adapters: tuple[Adapter, ...] = ()
        self._params = model_params(native, options)
        self._predictors = options.predictors
        self._servers = tuple({one.server for one in self._params.devices if one.server})
        params = self._params.struct
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
        self.native.connections.update(self._servers)
        try:
            with native.log.captured() as lines:
                self.handle = lib.llama_model_load_from_file(os.fsencode(options.path), params)
            if stopped is not None:
                raise stopped
            if not self.handle:
                raise load_error(options.path, lines)
            with native.log.captured() as more:
                self.adapters = self._load_adapters(options)
        except BaseException:
            self.free()
            raise
        self.lines = [*lines, *more]
        self.warnings = (*idle_overrides(options, lines), *_unlocked(lines))
        self.vocab = LlamaVocab(lib, lib.llama_model_get_vocab(self.handle))

    def _load_adapters(self, options: LlamaOptions) -> tuple[Adapter, ...]:
        return tuple(load_adapter(self.native, self.handle, path, scale) for path, scale in options.lora)

    def settings(self) -> Settings:
        """What reached llama.cpp, by name."""
        native = model_settings(self.native, self._params.struct, used_devices(self.lines))
        return (*native, ("lora", ",".join(f"{one.path}:{one.scale:g}" for one in self.adapters) or "none"))

    @property
    def buffer_types(self) -> list[BufferType]:
        """What its weights and caches can lie in."""
        return self.native.devices.buffer_types(self._params.devices)

    @property
    def cpu_share(self) -> float:
        """Share of the layers that are on the CPU, 0…1."""
        layers = layers_by_device(self.lines)
        # The output layer, which has no cache, is the last to stay: it is among these only if all are.
        return min(layers["CPU"] / self.n_layer, 1.0) if layers else 1.0

    @property
    def n_ctx_train(self) -> int:
        return int(self.native.lib.llama_model_n_ctx_train(self.handle))

    @property
    def n_layer(self) -> int:
        return int(self.native.lib.llama_model_n_layer(self.handle))

    @property
    def n_embd(self) -> int:
        return int(self.native.lib.llama_model_n_embd(self.handle))

    @property
    def architecture(self) -> str:
        return self.metadata("general.architecture") or ""

    @property
    def gives_layers(self) -> bool:
        """Whether its layers' inputs can be read."""
        return self.architecture in HOOKED

    @property
    def gives_states(self) -> bool:
        """Whether what layers for multi-token prediction read, its own or those of a file beside it, can be read."""
        return self.architecture in PREDICTING

    @property
    def predictors(self) -> int:
        """Layers for multi-token prediction that were loaded."""
        return int(self.native.lib.llama_model_n_layer_nextn(self.handle)) if self._predictors else 0

    @property
    def cache_shape(self) -> CacheShape:
        lib = self.native.lib
        lengths = (self.metadata(f"{self.architecture}.attention.{part}_length") for part in ("key", "value"))
        return CacheShape.of(
            self.n_layer,
            self.n_embd,
            lib.llama_model_n_head(self.handle),
            lib.llama_model_n_head_kv(self.handle),
            *(int(length) if length else None for length in lengths),
        )

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
    def has_experts(self) -> bool:
        """Whether a row takes some of several ways, as it is routed."""
        return int(self.metadata(f"{self.architecture}.expert_count") or 0) > 0

    @property
    def devices(self) -> tuple[Device, ...]:
        """Those that may compute for it, beside the CPU."""
        return self._params.devices

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
        """Its contexts must be gone; adapters go with it."""
        if self.handle:
            self.native.lib.llama_model_free(self.handle)
            self.handle = None
        self.adapters = ()
        self.native.connections.subtract(self._servers)
        self._servers = ()


def load_vocabulary(native: Native, path: Path) -> Any:
    """llama.cpp's handle of a file of which tokens and metadata are read, and no weights; it is the caller's to free.

    Raises:
        ModelLoadError, OutOfMemory: the file cannot be read.
    """
    check_file(path)
    params = native.lib.llama_model_default_params()
    params.vocab_only = True
    nowhere = (ctypes.c_void_p * 1)()  # else llama.cpp asks every device it knows, and a server may be gone
    params.devices = ctypes.addressof(nowhere)
    with native.log.captured() as lines:
        handle = native.lib.llama_model_load_from_file(os.fsencode(path), params)
    if not handle:
        raise load_error(path, lines)
    return handle


def check_file(path: Path, flag: str = "-m / -md") -> None:
    """Says what is wrong with a path before native code meets it.

    Raises:
        ModelLoadError: no such file, a directory, unreadable, not GGUF at all, or of the other byte order.
    """
    hint = f"Check the path given to {flag}."
    try:
        with path.open("rb") as file:
            magic, version = file.read(4), file.read(4)
    except FileNotFoundError:
        raise ModelLoadError(f"{path} does not exist", hint=hint) from None
    except IsADirectoryError:
        raise ModelLoadError(f"{path} is a folder, not a GGUF file", hint="Name the .gguf file in it.") from None
    except OSError as error:
        raise ModelLoadError(f"{path} cannot be read: {error.strerror}", hint=hint) from None
    if magic != b"GGUF":
        raise ModelLoadError(
            f"{path} is not a GGUF file (it starts with {str(magic)[1:]})",
            hint="Download it again, or convert the model to GGUF first.",
        )
    if len(version) == 4 and version[:2] == b"\0\0" != version[2:]:  # versions are small numbers
        raise ModelLoadError(
            f"{path} is a GGUF file of the other byte order (big-endian)",
            hint="Get one for this kind of processor, or convert it.",
        )


def load_error(path: Path, lines: list[Line]) -> LocalspecError:
    """The error for a load that failed, with the reason llama.cpp logged."""
    said = [text.strip() for level, text in lines if level >= logging.ERROR and text.strip()]
    if any("alloc" in text or "out of memory" in text for text in said):
        return OutOfMemory(
            f"{path.name} does not fit into memory ({said[0]})",
            hint="Use a smaller quantisation or fewer -ngl layers.",
        )
    reason = said[0].split("error loading model: ")[-1] if said else "llama.cpp gave no reason"
    reason = reason.split(": ", 1)[-1] if reason.startswith(("llama_", "gguf_", "make_")) else reason
    if "split buffers" in reason:
        return UsageError(f"-sm row: {reason}", hint="Use -sm layer, or other devices (-dev).")
    if "regex" in reason or "regular expression" in reason:
        return UsageError(f"a pattern of -ot or -otd cannot be read: {reason}", hint="It is a regular expression.")
    return ModelLoadError(
        f"{path.name} cannot be loaded: {reason}",
        hint="The file is damaged or too new for this build: download it again or update localspec.",
    )


def _unlocked(lines: list[Line]) -> list[str]:
    """A line for the user where memory could not be locked; llama.cpp goes on without."""
    failed = any("failed to mlock" in text or "mlock not supported" in text for _, text in lines)
    return ["--mlock: the system does not let so much memory be locked (ulimit -l), it may be swapped out"] * failed
