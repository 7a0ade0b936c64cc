"""Which tensors go into which buffers, whatever their layer: ``-ot`` and the CPU experts of ``-cmoe``/``-ncmoe``."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence

from localspec.backends.llamacpp.devices import Device, Devices
from localspec.backends.options import ModelOptions

#: Weights of experts, as llama.cpp names them.
EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
_OVERRIDDEN = re.compile(r"tensor (\S+) \(.*\) buffer type overridden to ")


class Override(ctypes.Structure):
    """``llama_model_tensor_buft_override``; a list of them ends with an empty one."""

    _fields_ = (("pattern", ctypes.c_char_p), ("buffer_type", ctypes.c_void_p))


def patterns(options: ModelOptions) -> list[tuple[str, str]]:
    """Pairs of pattern and buffer type, in the order they are tried. What was asked for by name comes first."""
    experts = [EXPERTS] if options.cpu_moe == -1 else [rf"blk\.{layer}{EXPERTS}" for layer in range(options.cpu_moe)]
    return [*options.tensor_overrides, *((pattern, "CPU") for pattern in experts)]


def native_overrides(
    options: ModelOptions, devices: Devices, chosen: Sequence[Device]
) -> ctypes.Array[Override] | None:
    """The list for llama.cpp, ``None`` if there is nothing to override. It holds its strings.

    Raises:
        UsageError: a buffer type that is not there.
    """
    pairs = patterns(options)
    if not pairs:
        return None
    there = devices.buffer_types(chosen)
    found = [Override(pattern.encode(), devices.find_buffer_type(name, there).handle) for pattern, name in pairs]
    return (Override * (len(found) + 1))(*found)


def idle_overrides(options: ModelOptions, lines: Sequence[tuple[int, str]]) -> list[str]:
    """A line for the user for each override that no tensor fell under, by what llama.cpp logged while it loaded."""
    moved = [match[1] for _, text in lines if (match := _OVERRIDDEN.search(text))]

    def hit(pattern: str) -> bool:
        try:
            return any(re.search(pattern, name) for name in moved)
        except re.error:  # C++ reads it, Python does not: nothing to say
            return True

    idle = [f"-ot {pattern}={buffer}: no tensor has such a name" for pattern, buffer in options.tensor_overrides]
    said = [line for line, (pattern, _) in zip(idle, options.tensor_overrides, strict=True) if not hit(pattern)]
    if options.cpu_moe and not hit(EXPERTS):
        said.append("-cmoe and -ncmoe do nothing here: the model has no experts in these layers")
    return said
