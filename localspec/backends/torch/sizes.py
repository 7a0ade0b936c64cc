"""Sizes of decoders built like llama's, and where they are built otherwise."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Self

from localspec.backends.torch.rope import RopeScaling


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

    @property
    def scale(self) -> float:
        """What attention multiplies the products of queries and keys by."""
        return float(self.each**-0.5)

    def window(self, layer: int) -> int:
        """How many tokens a layer sees, the newest included; 0: all of them."""
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """Where a decoder computes otherwise than llama. Tensors that llama lacks (biases, norms of heads and behind
    layers, matrices in one piece, experts) need no word here: they are there or not.

    Args:
        halves: RoPE turns pairs that lie half a head apart, not neighbours.
        turned: numbers of a head that RoPE turns; 0: all.
        gelu: in place of SiLU.
        embedding_scale: what embeddings are multiplied by.
        attention_scale: as `Sizes.scale`, if it is not the usual one.
        window: tokens that the layers ``windowed`` see; ``window_base`` is the base of RoPE there.
        scaling: of positions, in all other layers.
        experts: of a layer that take part in a token, where it has experts: ``all_experts``, each ``expert_inner`` wide
            between its matrices.
    """

    halves: bool = False
    turned: int = 0
    gelu: bool = False
    embedding_scale: float = 1.0
    attention_scale: float | None = None
    window: int = 0
    windowed: frozenset[int] = frozenset()
    window_base: float = 10000.0
    scaling: RopeScaling = field(default_factory=RopeScaling)
    experts: int = 0
    all_experts: int = 0
    expert_inner: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape(Sizes):
    """A model's."""

    n_vocab: int
    build: Build = field(default_factory=Build)

    @property
    def scale(self) -> float:
        own = self.build.attention_scale
        return float(self.each**-0.5) if own is None else own

    def window(self, layer: int) -> int:
        return self.build.window if layer in self.build.windowed else 0
