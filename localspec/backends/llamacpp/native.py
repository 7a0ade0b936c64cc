"""The door to llama.cpp's C API: the one place that imports llama_cpp, and where its log goes.

llama.cpp writes to file descriptor 2 by default, and llama-cpp-python hides that by swapping descriptors of the
whole process while a model loads. We do neither: a log callback collects every line, for the log file and for the
reason in an error message.
"""

from __future__ import annotations

import ctypes
import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

# OpenMP reads its settings when it is loaded. Threads of a pass wait for each other by spinning, and one that falls
# asleep instead is missed: waking it takes longer than what it waited for, above all in a virtual machine and beside
# other programs. So many turns are about a hundredth of a second, longer than what lies between two passes: plain
# decoding came out 16 % faster than with a tenth of them on a quiet machine, and with ten times as many no faster.
# Those would keep a thread that is let go beside busy programs spinning in the way of the rest for a tenth of a second.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "300000")

import llama_cpp
import llama_cpp.llama_cpp as lib

from localspec.backends.llamacpp.devices import Devices
from localspec.backends.llamacpp.hooks import Hooks
from localspec.backends.llamacpp.servers import join
from localspec.errors import UsageError

log = logging.getLogger("localspec.native")
log.addHandler(logging.NullHandler())

# GGML_LOG_LEVEL_*: 5 continues the line before.
_LEVELS = {1: logging.DEBUG, 2: logging.INFO, 3: logging.WARNING, 4: logging.ERROR}

Line = tuple[int, str]  # logging level, text


class NativeLog:
    """Receives llama.cpp's log lines, from whatever thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._level = logging.DEBUG
        self._part = ""
        self._readers: list[list[Line]] = []
        self._callback = llama_cpp.llama_log_callback(self._on_text)

    def install(self) -> None:
        lib.llama_log_set(self._callback, ctypes.c_void_p(0))

    def _on_text(self, level: int, text: bytes, _data: object) -> None:
        with self._lock:
            self._level = _LEVELS.get(level, self._level)
            self._part += text.decode("utf-8", "replace")
            *lines, self._part = self._part.split("\n")
            for line in lines:
                for reader in self._readers:
                    reader.append((self._level, line))
                log.log(self._level, "%s", line)

    @contextmanager
    def captured(self) -> Iterator[list[Line]]:
        """Collects the lines logged inside the block, those of llama.cpp's debug level too."""
        lines: list[Line] = []
        with self._lock:
            self._readers.append(lines)
        try:
            yield lines
        finally:
            with self._lock:
                self._readers = [reader for reader in self._readers if reader is not lines]


@cache
def _process_log() -> NativeLog:
    """llama.cpp has one log callback a process, and calls it for as long as any model lives: it must never be freed."""
    return NativeLog()


@cache
def _process_connections() -> Counter[str]:
    """RPC servers by the number of loaded models that hold a line to them: ggml keeps one a server and process."""
    return Counter()


class Native:
    """llama.cpp, initialised.

    ``log_file`` gets its log, appended; ``None``: nowhere but `logging`. ``rpc`` are servers (HOST:PORT) whose devices
    may be used.

    Raises:
        UsageError: the log file cannot be written, a server is not named as HOST:PORT, or this build has no RPC.
        NetworkError: a server does not answer.
    """

    def __init__(self, log_file: Path | None = None, rpc: Sequence[str] = ()) -> None:
        self.lib: Any = lib
        self.log = _process_log()
        self.log.install()
        if log_file is not None:
            _log_to(log_file)
        lib.llama_backend_init()
        self.connections = _process_connections()
        # Through libllama, not the binding's own ggml: wheels turn links into copies, so that one is loaded twice, and
        # what is registered with one copy is unknown to the other.
        join(lib._lib, self.library_path, rpc, tuple(+self.connections))
        self.devices = Devices(lib._lib, rpc)

    @cached_property
    def build(self) -> dict[str, str]:
        """What is known of the library: versions, and the instructions it uses."""
        found = {"llama-cpp-python": version("llama_cpp_python"), "system": lib.llama_print_system_info().decode()}
        for name in ("ggml_version", "ggml_commit"):
            function = lib._lib[name]  # a function object of our own
            function.restype = ctypes.c_char_p
            found[name] = (function() or b"").decode()
        return found

    @cached_property
    def row_address(self) -> Callable[[Any, int], int]:
        """``llama_get_logits_ith`` as an address: the binding's own wraps every row in a pointer object first."""
        function = lib._lib["llama_get_logits_ith"]  # a function object of our own
        function.argtypes = [lib.llama_context_p_ctypes, ctypes.c_int32]
        function.restype = ctypes.c_void_p
        return cast("Callable[[Any, int], int]", function)

    @cached_property
    def hooks(self) -> Hooks:
        """Raises as `Hooks`."""
        return Hooks(lib._lib)

    @property
    def library_path(self) -> str:
        """The shared library's file."""
        return str(lib._lib._name)

    @property
    def can_offload(self) -> bool:
        """Whether there is a GPU, here or behind an RPC server. llama.cpp's own answer is about the build alone."""
        return bool(self.devices.offload())


def _log_to(path: Path) -> None:
    if str(path.absolute()) in (getattr(handler, "baseFilename", None) for handler in log.handlers):
        return
    if not path.parent.is_dir():
        raise UsageError(f"{path} cannot be written: there is no folder {path.parent}", hint="Make it first.")
    try:
        handler = logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}", hint="Check the path given to --log-file."
        ) from None
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname).1s %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False


class InterruptFlag:
    """Tells a running pass to give up.

    llama.cpp asks its abort callback before every node of the graph, far too often to enter Python. libc's
    ``strlen`` on a two-byte buffer is a native callback that answers "is the first byte set?".
    """

    def __init__(self) -> None:
        self._buffer = ctypes.create_string_buffer(2)
        libc = ctypes.CDLL(None)
        self.callback = ctypes.cast(libc.strlen, lib.ggml_abort_callback)
        self.data = ctypes.cast(self._buffer, ctypes.c_void_p)

    def set(self, on: bool) -> None:
        self._buffer[0] = b"\x01" if on else b"\x00"

    @property
    def is_set(self) -> bool:
        return self._buffer[0] != b"\x00"
