"""Sizes of decoders built like llama's."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """``each`` is the width of one head of attention, ``inner`` that of a layer between its two matrices."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    each: int
    inner: int
    eps: float
    rope_base: float

    @classmethod
    def like(cls, other: Sizes, **changes: Any) -> Self:
        """With the sizes of ``other``, whatever else that knows."""
        return cls(**{one.name: getattr(other, one.name) for one in fields(Sizes)} | changes)
