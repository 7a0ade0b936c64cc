"""EAGLE heads in torch: what one pass computes, apart from its cache.

EAGLE-1 and -2 (arXiv 2401.15077, 2406.16858) guess the target's next state, as it comes out of the final norm, from a
state and the token after it, and score it with the target's own unembedding. EAGLE-3 (arXiv 2503.01840) reads three
layers of the target instead of one place, carries on a state of its own, and has its own unembedding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from localspec.backends.torch.attention import Heads
from localspec.backends.torch.eagle_weights import EagleWeights, HeadShape
from localspec.backends.torch.kernels.norm import norm_plainly
from localspec.backends.torch.kernels.rope_write import Turn
from localspec.backends.torch.place import Place

#: Attention of a layer over what the cache holds and what is new, as that of `Past`.
Attend = Callable[[int, Heads], Tensor]


class Eagle(Protocol):
    @property
    def shape(self) -> HeadShape: ...

    def encode(self, features: Tensor) -> Tensor:
        """States of tokens from the target's features, ``[n, read layers · target's width]``."""
        ...

    def read(self, embedded: Tensor, states: Tensor, turn: Turn, attend: Attend) -> tuple[Tensor, Tensor]:
        """Reads tokens (embedded) beside the states before them, both ``[texts, rows, width]``: what is carried on
        from each row, and what the unembedding scores."""
        ...


def eagle(weights: EagleWeights, place: Place) -> Eagle:
    """The head of ``weights``."""
    return (_Third if weights.is_third else _First)(weights, place)


class _Decoder:
    """Llama's layers, over what a kind of head lets them read."""

    def __init__(self, weights: EagleWeights, place: Place) -> None:
        self.shape = weights.shape
        ends = ("token_embd.weight", "output.weight")
        self._weights: Mapping[str, Tensor] = {
            key: place.put(weight) for key, weight in weights.weights.items() if key not in ends
        }

    def _linear(self, part: str, x: Tensor) -> Tensor:
        return F.linear(x, self._weights[f"{part}.weight"], self._weights.get(f"{part}.bias"))

    def _norm(self, part: str, x: Tensor) -> Tensor:
        return norm_plainly(x, self._weights[f"{part}.weight"], self.shape.eps)

    def _layer(self, layer: int, read: Tensor, past: Tensor, turn: Turn, attend: Attend) -> Tensor:
        """One layer, whose attention reads ``read``; ``past`` goes past it."""
        shape, block = self.shape, f"blk.{layer}."
        texts, rows, _ = read.shape

        def split(part: str, heads: int) -> Tensor:
            return self._linear(block + part, read).view(texts, rows, heads, shape.each).transpose(1, 2)

        k, v = (split(part, shape.kv_heads) for part in ("attn_k", "attn_v"))
        mixed = attend(layer, Heads(split("attn_q", shape.heads), k, v, turn))
        x = past + self._linear(block + "attn_output", mixed.transpose(1, 2).reshape(texts, rows, -1))
        inner = self._norm(block + "ffn_norm", x)
        gate = F.silu(self._linear(block + "ffn_gate", inner))
        return x + self._linear(block + "ffn_down", gate * self._linear(block + "ffn_up", inner))


class _First(_Decoder):
    """EAGLE-1 and -2."""

    def encode(self, features: Tensor) -> Tensor:
        return features

    def read(self, embedded: Tensor, states: Tensor, turn: Turn, attend: Attend) -> tuple[Tensor, Tensor]:
        x = self._linear("fc", torch.cat((embedded, states), dim=-1))
        for layer in range(self.shape.layers):
            # The first has no norm of its own.
            read = self._norm(f"blk.{layer}.attn_norm", x) if layer else x
            x = self._layer(layer, read, x, turn, attend)
        return x, x


class _Third(_Decoder):
    """EAGLE-3."""

    def __init__(self, weights: EagleWeights, place: Place) -> None:
        super().__init__(weights, place)
        self._past_is_normed = weights.norm_before_residual
        self._carries_normed = weights.norm_output

    def encode(self, features: Tensor) -> Tensor:
        norms = "enc.output_norm.weight" in self._weights
        return self._linear("fc", self._norm("enc.output_norm", features) if norms else features)

    def read(self, embedded: Tensor, states: Tensor, turn: Turn, attend: Attend) -> tuple[Tensor, Tensor]:
        normed = self._norm("blk.0.attn_norm_2", states)
        read = torch.cat((self._norm("blk.0.attn_norm", embedded), normed), dim=-1)
        x = self._layer(0, read, normed if self._past_is_normed else states, turn, attend)
        last = self._norm("output_norm", x)
        return (last if self._carries_normed else x), last
