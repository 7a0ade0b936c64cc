"""The devices and buffer types that ggml knows in this process: this machine's, and those of RPC servers."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from localspec.backends.options import CPU_ONLY
from localspec.errors import UsageError

_CPU, _GPU, _IGPU = 0, 1, 2  # GGML_BACKEND_DEVICE_TYPE_*
_RPC = "RPC"  # name of the registry all RPC devices belong to


@dataclass(frozen=True, slots=True)
class Device:
    """``handle`` is ggml's pointer; ``server`` the HOST:PORT of an RPC device. ``offload`` devices can take layers;
    ``shared``: into memory that is the CPU's, too."""

    handle: int
    name: str
    offload: bool
    cpu: bool
    shared: bool
    server: str | None

    @property
    def label(self) -> str:
        return f"{self.name} ({self.server})" if self.server else self.name


@dataclass(frozen=True, slots=True)
class BufferType:
    """A place for tensors: ggml's pointer, its name, and the device it belongs to."""

    handle: int
    name: str
    device: str


class Devices:
    """Lists devices and finds them by name.

    ggml never forgets an RPC server, so one that another engine of this process used is still listed by it: here only
    those in ``servers`` count.
    """

    def __init__(self, library: Any, servers: Sequence[str]) -> None:
        def function(name: str, result: Any, *arguments: Any) -> Any:
            found = library[name]  # a function object of our own
            found.restype, found.argtypes = result, list(arguments)
            return found

        handle, size = ctypes.c_void_p, ctypes.c_size_t
        self._servers = tuple(servers)
        self._count = function("ggml_backend_dev_count", size)
        self._get = function("ggml_backend_dev_get", handle, size)
        self._kind = function("ggml_backend_dev_type", ctypes.c_int, handle)
        self._name = function("ggml_backend_dev_name", ctypes.c_char_p, handle)
        self._description = function("ggml_backend_dev_description", ctypes.c_char_p, handle)
        self._memory = function("ggml_backend_dev_memory", None, handle, ctypes.POINTER(size), ctypes.POINTER(size))
        self._registry = function("ggml_backend_dev_backend_reg", handle, handle)
        self._registry_name = function("ggml_backend_reg_name", ctypes.c_char_p, handle)
        self._buffer_type = function("ggml_backend_dev_buffer_type", handle, handle)
        self._buffer_name = function("ggml_backend_buft_name", ctypes.c_char_p, handle)

    def name(self, handle: int) -> str:
        return str(self._name(handle).decode())

    def description(self, handle: int) -> str:
        """What a device is; of one behind an RPC server, the server."""
        return str(self._description(handle).decode("utf-8", "replace"))

    def memory(self, handle: int) -> tuple[int, int]:
        """Bytes of a device that are free, and all of them."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._memory(handle, ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def buffer_name(self, handle: int) -> str:
        return str(self._buffer_name(handle).decode())

    def registered(self) -> list[Device]:
        """All that ggml knows."""
        return [self._read(self._get(i)) for i in range(self._count())]

    def _read(self, handle: int) -> Device:
        kind = self._kind(handle)
        remote = self._registry_name(self._registry(handle)).decode() == _RPC
        return Device(
            handle=handle,
            name=self.name(handle),
            offload=kind in (_GPU, _IGPU),
            cpu=kind == _CPU,
            shared=kind == _IGPU,
            server=self.description(handle) if remote else None,
        )

    def offload(self) -> list[Device]:
        """Devices that layers can go to, in llama.cpp's order: RPC servers first."""
        usable = [one for one in self.registered() if one.offload and one.server in (None, *self._servers)]
        return sorted(usable, key=lambda one: one.server is None)

    def chosen(self, names: tuple[str, ...] | None) -> list[Device]:
        """The devices of a model.

        Raises:
            UsageError: a name that is not there; the message lists those that are.
        """
        there = self.offload()
        if names is None:
            return there
        if names == (CPU_ONLY,):
            return []
        return [self._find(name, there) for name in names]

    def _find(self, name: str, there: list[Device]) -> Device:
        found = next((one for one in there if one.name.lower() == name.lower()), None)
        if found is None and "[" in name:  # as its buffers are called: RPC0[HOST:PORT]
            buffers = {one.name.lower(): one.device for one in self.buffer_types(there)}
            found = next((one for one in there if one.name == buffers.get(name.lower())), None)
        if found is None:
            listed = ", ".join(one.label for one in there)
            raise UsageError(
                f"device {name} is not there ({f'there is {listed}' if there else 'there is only the CPU'})",
                hint="Name one that is there (-dev, -devd) or none for the CPU, or add servers with --rpc.",
            )
        return found

    def needs_list(self, names: tuple[str, ...] | None) -> bool:
        """Whether llama.cpp must be told the devices: it would take every one it knows."""
        forgotten = any(one.server not in (None, *self._servers) for one in self.registered())
        return names is not None or forgotten

    def buffer_types(self, devices: Sequence[Device]) -> list[BufferType]:
        """What tensors of a model on ``devices`` can be put into: the CPU's memory, and that of each device."""
        cpu = [one for one in self.registered() if one.cpu]
        return [
            BufferType(handle, self.buffer_name(handle), one.name)
            for one in (*cpu, *devices)
            if (handle := self._buffer_type(one.handle))
        ]

    def find_buffer_type(self, name: str, there: Sequence[BufferType]) -> BufferType:
        """By its own name or its device's.

        Raises:
            UsageError: it is not there; the message lists those that are.
        """
        found = next((one for one in there if name.lower() in (one.name.lower(), one.device.lower())), None)
        if found is None:
            raise UsageError(
                f"buffer type {name} is not there (there is {', '.join(one.name for one in there)})",
                hint="Name one of these after the = of -ot or -otd; devices among -dev or -devd count alone.",
            )
        return found
