"""Where a model's weights and its cache really are.

llama.cpp has no function for it in C; it logs each buffer with its size while it loads, and the device of each layer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from localspec.backends.llamacpp.devices import BufferType
from localspec.types import Placement

_LAYER = re.compile(r"layer +\d+ assigned to device (\S+?),")
_BUFFER = re.compile(r" (\S+) (model|LoRA|KV|RS|compute) buffer size = +([\d.]+) MiB")
_USED = re.compile(r"using device (\S+) ")
_FLASH = re.compile(r"(Flash Attention enabled|enabling flash_attn)|(Flash Attention not supported|forcing off)")
_CACHE = re.compile(r"size = +([\d.]+) MiB \( *(\d+) cells, +(\d+) layers")
_WINDOW = re.compile(r"creating +SWA KV cache")
_HOST = "CPU"
_HOST_BUFFER = re.compile(r"CPU|AMX|.*_Host$")  # mapped, repacked or pinned

Lines = Sequence[tuple[int, str]]


def layers_by_device(lines: Lines) -> Counter[str]:
    """Device → layers, counted as ``-ngl`` does: the output layer is one."""
    return Counter(match[1] for _, text in lines if (match := _LAYER.search(text)))


def placement(lines: Lines, buffers: Sequence[BufferType]) -> tuple[Placement, ...]:
    """What lies on which device, by the lines logged while the model and its context were made.

    Sizes are rounded to 0.01 MiB, as they are logged. Of a mapped file the part from its first to its last tensor on
    the CPU counts, whatever lies between: without mmap the number is exact.
    """
    layers = layers_by_device(lines)
    weights: Counter[str] = Counter()
    cache: Counter[str] = Counter()
    passes: dict[str, int] = {}  # logged again whenever they are made again
    for _, text in lines:
        if match := _BUFFER.search(text):
            device = _owner(match[1], buffers)
            size = round(float(match[3]) * 2**20)
            if match[2] == "compute":
                passes[device] = max(size, passes.get(device, 0))
            else:
                (cache if match[2] in ("KV", "RS") else weights)[device] += size
    names = dict.fromkeys([*layers, *weights, *cache])
    return tuple(
        Placement(name, layers[name], weights[name], cache[name], passes.get(name, 0))
        for name in sorted(names, key=_order)
    )


def _order(device: str) -> tuple[bool, str]:
    return (device != _HOST, device)


def _owner(buffer: str, buffers: Sequence[BufferType]) -> str:
    """The device of a buffer; one that is spread over several (``-sm row``) stands for itself."""
    if _HOST_BUFFER.match(buffer):
        return _HOST
    return next((one.device for one in buffers if one.name == buffer), buffer)


def flash_attention(lines: Lines) -> str | None:
    """What ``auto`` became; ``None`` if llama.cpp did not say."""
    found = next((match for _, text in lines if (match := _FLASH.search(text))), None)
    return None if found is None else "enabled" if found[1] else "disabled"


def window_cache(lines: Lines) -> str | None:
    """What the layers with a sliding window keep: ``15 layers of 4096 cells, 62.9 MB``; ``None``: there are none.

    Its price: without ``--swa-full`` there are fewer cells, with it as many as the context is long.
    """
    texts = iter([text for _, text in lines])
    if not any(_WINDOW.search(text) for text in texts):  # goes on behind it
        return None
    found = next((match for text in texts if (match := _CACHE.search(text))), None)
    return found and f"{found[3]} layers of {found[2]} cells, {float(found[1]) * 2**20 / 1e6:.1f} MB"


def used_devices(lines: Lines) -> str:
    """The devices a model was made with, as names with commas."""
    return ",".join(match[1] for _, text in lines if (match := _USED.search(text)))
