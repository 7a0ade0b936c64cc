"""A llama decoder: many texts at once, with hidden states."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from localspec.backends.torch.gguf_file import read_gguf
from localspec.backends.torch.rope import cos_and_sin, rotated, turns
from localspec.backends.torch.sizes import Sizes

ARCHITECTURE = "llama"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape(Sizes):
    """Sizes of a model."""

    n_vocab: int


@dataclass(slots=True)
class Cache:
    """Keys and values of what was read, a layer: ``[texts, kv heads, room, each]``, the first ``n`` of them filled."""

    keys: list[Tensor]
    values: list[Tensor]
    n: int = 0

    @classmethod
    def of(cls, shape: Shape, texts: int, room: int, like: Tensor | None = None) -> Cache:
        """Empty; of the type of ``like``, and where it is."""
        size = (texts, shape.kv_heads, room, shape.each)
        zeros = torch.zeros if like is None else like.new_zeros
        keys, values = ([zeros(size) for _ in range(shape.layers)] for _ in range(2))
        return cls(keys, values)


@dataclass(frozen=True, slots=True)
class Read:
    """What a pass gives: ``hidden`` ``[texts, n, width]`` behind the last norm, and inputs of layers, of the same
    shape, by layer."""

    hidden: Tensor
    layers: Mapping[int, Tensor] = field(default_factory=dict)


class TorchLlama:
    """A model with these weights, by the names of GGUF files."""

    def __init__(self, shape: Shape, weights: Mapping[str, Tensor]) -> None:
        self.shape, self.weights = shape, weights
        self.embedding = self.weights["token_embd.weight"]
        self.unembedding = self.weights.get("output.weight", self.embedding)
        self._norm_weight = self.weights["output_norm.weight"]
        slower = self.weights.get("rope_freqs.weight")
        self._turns = turns(shape.each, shape.rope_base, slower).to(self.embedding.device)

    @classmethod
    def of_file(cls, path: Path) -> TorchLlama:
        """That of a GGUF file.

        Raises:
            ModelLoadError: another architecture, or the file cannot be read.
        """
        found = read_gguf(path, ARCHITECTURE, "Torch reads models of that architecture only.")
        return TorchLlama(Shape.like(found.sizes, n_vocab=found.n_vocab), found.tensors)

    def block(self, layer: int, name: str) -> Tensor:
        return self.weights[f"blk.{layer}.{name}.weight"]

    def read(
        self,
        tokens: Tensor,
        layers: Collection[int] = (),
        cache: Cache | None = None,
        positions: Tensor | None = None,
        sees: Tensor | None = None,
    ) -> Read:
        """Reads ``tokens`` ``[texts, n]``: whole texts, or what follows those in ``cache``, which grows by them.

        More than one token behind a cache, or tokens of a tree, need ``sees`` ``[n, in the cache + n]``: true where a
        token sees another. ``positions`` ``[n]`` are their places in the text, if they are not one behind the other.
        """
        with torch.no_grad():
            return self.compute(tokens, layers, cache, positions, sees)

    def compute(
        self,
        tokens: Tensor,
        layers: Collection[int] = (),
        cache: Cache | None = None,
        positions: Tensor | None = None,
        sees: Tensor | None = None,
    ) -> Read:
        """As `read`, so that weights can learn from it."""
        shape, start = self.shape, 0 if cache is None else cache.n
        texts, n = tokens.shape
        places = torch.arange(start, start + n, device=tokens.device) if positions is None else positions
        x = F.embedding(tokens, self.embedding)
        cos, sin = cos_and_sin(places, self._turns)
        turn = cos.to(x.dtype), sin.to(x.dtype)
        kept = {}
        for layer in range(shape.layers):
            if layer in layers:
                kept[layer] = x
            read = norm(x, self.block(layer, "attn_norm"), shape.eps)
            q = rotated(self._attended(read, layer, "q"), turn)
            k = rotated(self._attended(read, layer, "k"), turn)
            v = self._attended(read, layer, "v")
            if cache is not None:
                cache.keys[layer][:, :, start : start + n] = k
                cache.values[layer][:, :, start : start + n] = v
                k, v = cache.keys[layer][:, :, : start + n], cache.values[layer][:, :, : start + n]
            mixed = F.scaled_dot_product_attention(
                q, k, v, sees, is_causal=sees is None and n > 1, enable_gqa=shape.heads != shape.kv_heads
            )
            x = x + mixed.transpose(1, 2).reshape(texts, n, -1) @ self.block(layer, "attn_output").T
            read = norm(x, self.block(layer, "ffn_norm"), shape.eps)
            gate = F.silu(read @ self.block(layer, "ffn_gate").T)
            x = x + (gate * (read @ self.block(layer, "ffn_up").T)) @ self.block(layer, "ffn_down").T
        if cache is not None:
            cache.n += n
        return Read(norm(x, self._norm_weight, shape.eps), kept)

    def _attended(self, x: Tensor, layer: int, part: str) -> Tensor:
        """Queries, keys or values of ``x`` ``[texts, n, width]``: ``[texts, heads, n, each]``. Some models of this
        build add a bias, or norm each head."""
        weights, name = self.weights, f"blk.{layer}.attn_{part}"
        found = F.linear(x, weights[f"{name}.weight"], weights.get(f"{name}.bias"))
        found = found.view(*x.shape[:2], -1, self.shape.each).transpose(1, 2)
        weight = weights.get(f"{name}_norm.weight")
        return found if weight is None else norm(found, weight, self.shape.eps)


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm over the last axis."""
    return F.rms_norm(x, (x.shape[-1],), weight, eps)
