"""Whether models and caches can fit, told from sizes alone. Loads nothing heavy."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from localspec.backends.container import container_limits
from localspec.hub.header import Header

#: Share of the free memory that may be filled; buffers and the rest of the machine want some.
ROOM = 0.9
#: Bytes of one cached number, by cache type; block types as bytes per block over numbers per block.
_BYTES = {
    "f32": 4.0,
    "f16": 2.0,
    "bf16": 2.0,
    "q8_0": 34 / 32,
    "q4_0": 18 / 32,
    "q4_1": 20 / 32,
    "iq4_nl": 18 / 32,
    "q5_0": 22 / 32,
    "q5_1": 24 / 32,
}


@dataclass(frozen=True, slots=True)
class CacheShape:
    """``key`` and ``value`` are the numbers that a token puts into each of ``layers``; an upper bound where layers
    differ."""

    layers: int
    key: int
    value: int

    @classmethod
    def of(
        cls, layers: int, width: int, heads: int, heads_kv: int, key_length: int | None, value_length: int | None
    ) -> CacheShape:
        """From what a file says: the lengths are those of one head, ``None`` where all heads share the width."""
        usual = width // max(heads, 1)
        key, value = (usual if length is None else length for length in (key_length, value_length))
        return cls(layers, key * heads_kv, value * heads_kv)

    @classmethod
    def in_header(cls, header: Header) -> CacheShape | None:
        """``None`` where layers differ in a way that the header's plain numbers do not tell."""
        attention = "{arch}.attention."
        layers, width = header.number("{arch}.block_count"), header.number("{arch}.embedding_length")
        heads = header.number(f"{attention}head_count")
        shared = header.metadata.get(f"{header.architecture}.attention.head_count_kv", heads)
        if layers is None or width is None or heads is None or not isinstance(shared, int):
            return None
        lengths = (header.number(f"{attention}{part}_length") for part in ("key", "value"))
        return cls.of(layers, width, heads, shared, *lengths)

    def size(self, n_ctx: int, type_k: str, type_v: str) -> int:
        """Bytes of a cache of ``n_ctx`` tokens."""
        return int(n_ctx * self.layers * (self.key * _BYTES[type_k] + self.value * _BYTES[type_v]))


def available_bytes() -> int | None:
    """Memory that can be had without swapping, in a container no more than it has left; ``None`` where the system does
    not say."""
    found = [free for free in (_meminfo("MemAvailable"), container_limits().free) if free is not None]
    return min(found, default=None)


def total_bytes() -> int | None:
    """The machine's memory; ``None`` where the system does not say."""
    return _meminfo("MemTotal")


def resident_bytes(process: int) -> int | None:
    """What a process holds of the machine's memory, its mapped files included; ``None`` where the system does not say,
    or it is gone."""
    try:
        pages = Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1]
    except (OSError, IndexError):
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _meminfo(name: str) -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = next((line for line in lines if line.startswith(f"{name}:")), None)
    return int(found.split()[1]) * 1024 if found else None
