"""A llama decoder with the weights of a GGUF file, in float32: many texts at once, with hidden states."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from localspec.errors import ModelLoadError

ARCHITECTURE = "llama"


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a decoder; ``each`` is the width of one head."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    each: int
    inner: int
    n_vocab: int
    eps: float
    rope_base: float


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
    """The model of ``path``.

    Raises:
        ModelLoadError: another architecture.
    """

    def __init__(self, path: Path) -> None:
        reader = gguf.GGUFReader(path)
        found = str(_value(reader, "general.architecture"))
        if found != ARCHITECTURE:
            raise ModelLoadError(
                f"{path.name} is of the architecture {found}; torch reads {ARCHITECTURE} only",
                hint="Use a model of that architecture.",
            )
        self._set_up(_shape(reader), {one.name: _dequantised(one) for one in reader.tensors})

    def _set_up(self, shape: Shape, weights: Mapping[str, Tensor]) -> None:
        self.shape, self.weights = shape, weights
        self.embedding = self.weights["token_embd.weight"]
        self.unembedding = self.weights.get("output.weight", self.embedding)
        self._norm_weight = self.weights["output_norm.weight"]
        self._rope_factors = self.weights.get("rope_freqs.weight")

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
            return self._read(tokens, layers, cache, positions, sees)

    def _read(
        self,
        tokens: Tensor,
        layers: Collection[int],
        cache: Cache | None,
        positions: Tensor | None,
        sees: Tensor | None,
    ) -> Read:
        shape, start = self.shape, 0 if cache is None else cache.n
        texts, n = tokens.shape
        places = torch.arange(start, start + n, device=tokens.device) if positions is None else positions
        x = F.embedding(tokens, self.embedding)
        cos, sin = rope(places, shape.each, shape.rope_base, self._rope_factors)
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


def rope(positions: Tensor, each: int, base: float, factors: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Cosine and sine of the angles of ``positions`` ``[n]``: ``[n, each / 2]``. ``factors`` ``[each / 2]`` slow some
    of them down, for longer texts."""
    waves = base ** (torch.arange(0, each, 2, device=positions.device) / each)
    angles = positions[:, None].float() / (waves if factors is None else waves * factors)
    return angles.cos(), angles.sin()


def rotated(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """RoPE over neighbouring pairs, as GGUF files of llama have their weights; ``x`` is ``[…, n, each]``."""
    cos, sin = turn
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


def _value(reader: Any, key: str, default: Any = None) -> Any:
    found = reader.fields.get(key)
    return default if found is None else found.contents()


def _shape(reader: Any) -> Shape:
    def of(key: str, default: Any = None) -> Any:
        return _value(reader, f"{ARCHITECTURE}.{key}", default)

    width, heads = int(of("embedding_length")), int(of("attention.head_count"))
    return Shape(
        layers=int(of("block_count")),
        width=width,
        heads=heads,
        kv_heads=int(of("attention.head_count_kv", heads)),
        each=int(of("attention.key_length", width // heads)),
        inner=int(of("feed_forward_length")),
        n_vocab=len(_value(reader, "tokenizer.ggml.tokens")),
        eps=float(of("attention.layer_norm_rms_epsilon")),
        rope_base=float(of("rope.freq_base", 10000.0)),
    )


def _dequantised(tensor: Any) -> Tensor:
    weights = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    # Float32 comes as it lies in the file, which may only be read.
    return torch.from_numpy(np.require(weights, np.float32, ["C", "W"]))
