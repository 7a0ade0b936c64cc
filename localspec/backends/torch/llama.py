"""A decoder built like llama's: many texts at once, with hidden states.

One definition for all architectures that torch runs (`localspec.backends.torch.architectures`). What a model computes
is told by its `Shape`, and by which tensors it has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from localspec.backends.options import RopeOptions
from localspec.backends.torch.architectures import (
    ARCHITECTURES,
    LLAMACPP,
    check_tensors,
    original_length,
    read_shape,
)
from localspec.backends.torch.attention import Nothing, Past
from localspec.backends.torch.gguf_file import read_sizes
from localspec.backends.torch.place import Place
from localspec.backends.torch.rope import RopeScaling, cos_and_sin, rotated, turns
from localspec.backends.torch.sizes import Shape
from localspec.backends.torch.tensors import Told, gguf_tensors
from localspec.hub.header import Header

ARCHITECTURE = "llama"
_FREQUENCIES = "rope_freqs.weight"

Turn = tuple[Tensor, Tensor]


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
        build = shape.build
        self._activated: Callable[[Tensor], Tensor] = partial(F.gelu, approximate="tanh") if build.gelu else F.silu
        self._turning = self._turning_by(shape.rope_base, build.scaling, self.weights.get(_FREQUENCIES))
        # Where only near tokens are seen, no position is far.
        self._turning_near = self._turning_by(build.window_base, RopeScaling(), None)

    @classmethod
    def of_file(
        cls,
        path: Path,
        *,
        n_ctx: int = 0,
        rope: RopeOptions | None = None,
        place: Place | None = None,
        told: Told = lambda share: None,
    ) -> TorchLlama:
        """That of a GGUF file, or of several that are one.

        Args:
            n_ctx: tokens that texts will have at most, 0: as many as it was trained for. Some models turn positions
                otherwise where texts are long.
            rope: what the user wants to be otherwise.
            told: the share that was read, 0…1, before each tensor.

        Raises:
            ModelLoadError: another architecture, tensors that are not known, or the file cannot be read.
        """
        header, shape = read_header_and_shape(path, rope)
        tensors = gguf_tensors(path, (place or Place()).put, told)
        check_tensors(tensors, shape.layers, path.name)
        long = (n_ctx or header.number("{arch}.context_length") or 0) > original_length(header)
        factors = tensors.get(f"rope_factors_{'long' if long else 'short'}.weight")
        return cls(shape, tensors if factors is None else {_FREQUENCIES: factors, **tensors})

    def _turning_by(self, base: float, scaling: RopeScaling, slower: Tensor | None) -> tuple[Tensor, float]:
        """The radians of a position, and how large sine and cosine are."""
        plain = turns(
            self.shape.build.turned or self.shape.each, base, None if slower is None else slower.float().cpu()
        )
        return scaling.scaled(plain, base).to(self.embedding.device), scaling.magnitude

    @property
    def bytes(self) -> int:
        """Of all weights."""
        return sum(int(weights.nbytes) for weights in self.weights.values())

    def block(self, layer: int, name: str) -> Tensor:
        return self.weights[f"blk.{layer}.{name}.weight"]

    def read(self, tokens: Tensor, layers: Collection[int] = (), past: Past | None = None) -> Read:
        """Reads ``tokens`` ``[texts, n]``: whole texts, or what follows ``past``."""
        with torch.no_grad():
            return self.compute(tokens, layers, past)

    def compute(self, tokens: Tensor, layers: Collection[int] = (), past: Past | None = None) -> Read:
        """As `read`, so that weights can learn from it."""
        past = past or Nothing(self.shape, tokens.device)
        x = F.embedding(tokens, self.embedding) * self.shape.build.embedding_scale
        far, near = (self._turn(past.places(tokens.shape[1]), one, x) for one in (self._turning, self._turning_near))
        kept = {}
        for layer in range(self.shape.layers):
            if layer in layers:
                kept[layer] = x
            x = x + self._attention(layer, x, near if self.shape.window(layer) else far, past)
            x = x + self._inner(layer, x)
        return Read(self._norm("output_norm", x), kept)

    def scores(self, hidden: Tensor) -> Tensor:
        """Logits behind states ``[…, width]`` that came out of the last norm."""
        return F.linear(hidden, self.unembedding)

    def _turn(self, places: Tensor, turning: tuple[Tensor, float], like: Tensor) -> Turn:
        cos, sin = cos_and_sin(places, turning[0])
        return (cos * turning[1]).to(like.dtype), (sin * turning[1]).to(like.dtype)

    def _attention(self, layer: int, x: Tensor, turn: Turn, past: Past) -> Tensor:
        block, halves = f"blk.{layer}.", self.shape.build.halves
        q, k, v = self._heads(block, self._norm(f"{block}attn_norm", x))
        q, k = self._norm_if(f"{block}attn_q_norm", q), self._norm_if(f"{block}attn_k_norm", k)
        seen = past.attend(layer, rotated(q, turn, halves=halves), rotated(k, turn, halves=halves), v)
        given = self._linear(f"{block}attn_output", seen.transpose(1, 2).flatten(2))
        return self._norm_if(f"{block}post_attention_norm", given)

    def _heads(self, block: str, x: Tensor) -> list[Tensor]:
        """Queries, keys and values of ``x`` ``[texts, n, width]``: ``[texts, heads, n, each]``."""
        shape = self.shape
        if f"{block}attn_qkv.weight" in self.weights:
            parts = [heads * shape.each for heads in (shape.heads, shape.kv_heads, shape.kv_heads)]
            rows = self._linear(f"{block}attn_qkv", x).split(parts, dim=-1)
        else:
            rows = tuple(self._linear(f"{block}attn_{part}", x) for part in "qkv")
        return [part.view(*x.shape[:2], -1, shape.each).transpose(1, 2) for part in rows]

    def _inner(self, layer: int, x: Tensor) -> Tensor:
        block = f"blk.{layer}."
        read = self._norm(f"{block}ffn_norm", x)
        if f"{block}ffn_gate_inp.weight" in self.weights:
            given = self._experts(block, read.flatten(0, 1)).view_as(x)
        else:
            up = self._linear(f"{block}ffn_up", read)
            gate, up = (
                (self._linear(f"{block}ffn_gate", read), up)
                if f"{block}ffn_gate.weight" in self.weights
                else up.chunk(2, dim=-1)
            )
            given = self._linear(f"{block}ffn_down", self._activated(gate) * up)
        return self._norm_if(f"{block}post_ffw_norm", given)

    def _experts(self, block: str, rows: Tensor) -> Tensor:
        """Each of ``rows`` ``[n, width]`` goes through the experts that its router finds likeliest."""
        gate, up, down = (self.weights[f"{block}ffn_{part}_exps.weight"] for part in ("gate", "up", "down"))
        chances = torch.softmax(self._linear(f"{block}ffn_gate_inp", rows), dim=-1)
        share, chosen = chances.topk(self.shape.build.experts, dim=-1)
        share = share / share.sum(dim=-1, keepdim=True)
        given = torch.zeros_like(rows)
        for expert in chosen.unique().tolist():
            at, place = (chosen == expert).nonzero(as_tuple=True)
            read = rows[at]
            inner = self._activated(read @ gate[expert].T) * (read @ up[expert].T)
            given.index_add_(0, at, inner @ down[expert].T * share[at, place, None])
        return given

    def _linear(self, name: str, x: Tensor) -> Tensor:
        return F.linear(x, self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias"))

    def _norm(self, name: str, x: Tensor) -> Tensor:
        return norm(x, self.weights[f"{name}.weight"], self.shape.eps)

    def _norm_if(self, name: str, x: Tensor) -> Tensor:
        """Some architectures norm here."""
        return self._norm(name, x) if f"{name}.weight" in self.weights else x


def read_header_and_shape(path: Path, rope: RopeOptions | None = None) -> tuple[Header, Shape]:
    """What a GGUF file says of its model, without its tensors. As `TorchLlama.of_file`."""
    header, sizes, n_vocab = read_sizes(path, ARCHITECTURES, LLAMACPP)
    return header, read_shape(header, sizes, n_vocab, rope or RopeOptions())


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm over the last axis."""
    return F.rms_norm(x, (x.shape[-1],), weight, eps)
