"""A decoder built like llama's: many texts at once, with hidden states.

One definition for all architectures that torch runs (`localspec.backends.torch.architectures`). What a model computes
is told by its `Shape`, and by which tensors it has.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
from localspec.backends.torch.attention import Heads, Nothing, Past
from localspec.backends.torch.gguf_file import read_sizes
from localspec.backends.torch.joined import Weight, join
from localspec.backends.torch.kernels.dispatch import PLAIN, Ops
from localspec.backends.torch.kernels.experts import Experts
from localspec.backends.torch.kernels.planes import Planes
from localspec.backends.torch.kernels.rope_write import HeadNorms, Turn
from localspec.backends.torch.place import Place
from localspec.backends.torch.places import Places
from localspec.backends.torch.rope import RopeScaling, cos_and_sin, turns
from localspec.backends.torch.sizes import Shape
from localspec.backends.torch.tensors import Told, gguf_tensors
from localspec.hub.header import Header

ARCHITECTURE = "llama"
_FREQUENCIES = "rope_freqs.weight"


@dataclass(frozen=True, slots=True)
class Read:
    """What a pass gives: ``hidden`` ``[texts, n, width]`` behind the last norm, and inputs of layers, of the same
    shape, by layer."""

    hidden: Tensor
    layers: Mapping[int, Tensor] = field(default_factory=dict)


class TorchLlama:
    """A model with these weights, by the names of GGUF files, which computes by the kernels ``ops``. A matrix may lie
    in planes, for kernels that read quantised ones. ``places``: where the weights lie; not given: all where the table
    of tokens does. What lies on another device than the last layers computes by torch's own functions."""

    def __init__(
        self, shape: Shape, weights: Mapping[str, Weight], ops: Ops = PLAIN, places: Places | None = None
    ) -> None:
        self.shape, self.ops = shape, ops
        self.weights: Mapping[str, Any] = weights
        self.embedding: Tensor = self.weights["token_embd.weight"]
        self.unembedding = self.weights.get("output.weight", self.embedding)
        self.places = places or Places.whole(Place(self.embedding.device, self.embedding.dtype))
        self._home = self.weights["output_norm.weight"].device
        build = shape.build
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
        places: Places | None = None,
        told: Told = lambda share: None,
        ops: Ops = PLAIN,
        packed: bool = False,
    ) -> TorchLlama:
        """That of a GGUF file, or of several that are one.

        Args:
            n_ctx: tokens that texts will have at most, 0: as many as it was trained for. Some models turn positions
                otherwise where texts are long.
            rope: what the user wants to be otherwise.
            places: where it is to lie; not given: on the CPU.
            told: the share that was read, 0…1, before each tensor.
            ops: what it computes by. Where a kernel takes longer to start than to run, matrices are joined.
            packed: matrices for which there are kernels stay quantised, in the last place.

        Raises:
            ModelLoadError: another architecture, tensors that are not known, or the file cannot be read.
        """
        header, shape = read_header_and_shape(path, rope)
        places = places or Places.whole(Place())
        tensors = gguf_tensors(path, places, told, packed=packed)
        check_tensors(tensors, shape.layers, path.name)
        if not ops.waits:
            join(tensors, range(places.border, shape.layers))
        long = (n_ctx or header.number("{arch}.context_length") or 0) > original_length(header)
        factors = tensors.get(f"rope_factors_{'long' if long else 'short'}.weight")
        return cls(shape, tensors if factors is None else {_FREQUENCIES: factors, **tensors}, ops, places)

    def _turning_by(self, base: float, scaling: RopeScaling, slower: Tensor | None) -> tuple[Tensor, float]:
        """The radians of a position, and how large sine and cosine are."""
        plain = turns(
            self.shape.build.turned or self.shape.each, base, None if slower is None else slower.float().cpu()
        )
        return scaling.scaled(plain, base).to(self.embedding.device), scaling.magnitude

    def bytes_in(self, place: Place) -> int:
        """Of the weights that lie there."""
        return sum(int(one.nbytes) for name, one in self.weights.items() if self.places.of_tensor(name) == place)

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
        far, near = (self._turn(past.places(tokens.shape[1]), one) for one in (self._turning, self._turning_near))
        kept, read = {}, self._norm("blk.0.attn_norm", x)
        for layer in range(self.shape.layers):
            if layer in layers:
                kept[layer] = x
            block, is_last = f"blk.{layer}.", layer == self.shape.layers - 1
            turn = near if self.shape.window(layer) else far
            x, read = self._add_norm(self._attention(layer, read, turn, past), x, f"{block}ffn_norm")
            behind = "output_norm" if is_last else f"blk.{layer + 1}.attn_norm"
            given = self._inner(block, read)
            if layer + 1 == self.places.border:
                x = self.places.last.put(x + given)
                far, near = (one.to(x.device) for one in (far, near))
                read = self._norm(behind, x)
            else:
                x, read = self._add_norm(given, x, behind)
        return Read(read, kept)

    def scores(self, hidden: Tensor) -> Tensor:
        """Logits behind states ``[…, width]`` that came out of the last norm."""
        return self._times(hidden, self.unembedding)

    def _turn(self, places: Tensor, turning: tuple[Tensor, float]) -> Turn:
        cos, sin = cos_and_sin(places, turning[0])
        return Turn(cos * turning[1], sin * turning[1], self.shape.build.halves)

    def _attention(self, layer: int, read: Tensor, turn: Turn, past: Past) -> Tensor:
        block = f"blk.{layer}."
        q, k, v = self._heads(block, read)
        seen = past.attend(layer, Heads(q, k, v, turn, self._head_norms(block)))
        given = self._linear(f"{block}attn_output", seen.transpose(1, 2).flatten(2))
        return self._norm_if(f"{block}post_attention_norm", given)

    def _head_norms(self, block: str) -> HeadNorms | None:
        """Some architectures norm each head."""
        q = self.weights.get(f"{block}attn_q_norm.weight")
        return None if q is None else HeadNorms(q, self.weights[f"{block}attn_k_norm.weight"], self.shape.eps)

    def _heads(self, block: str, x: Tensor) -> list[Tensor]:
        """Queries, keys and values of ``x`` ``[texts, n, width]``: ``[texts, heads, n, each]``."""
        shape = self.shape
        if f"{block}attn_qkv.weight" in self.weights:
            parts = [heads * shape.each for heads in (shape.heads, shape.kv_heads, shape.kv_heads)]
            rows = self._linear(f"{block}attn_qkv", x).split(parts, dim=-1)
        else:
            rows = tuple(self._linear(f"{block}attn_{part}", x) for part in "qkv")
        return [part.view(*x.shape[:2], -1, shape.each).transpose(1, 2) for part in rows]

    def _inner(self, block: str, read: Tensor) -> Tensor:
        if f"{block}ffn_gate_inp.weight" in self.weights:
            given = self._experts(block, read.flatten(0, 1)).view_as(read)
        else:
            up = self._linear(f"{block}ffn_up", read)
            gate, up = (
                (self._linear(f"{block}ffn_gate", read), up)
                if f"{block}ffn_gate.weight" in self.weights
                else up.chunk(2, dim=-1)
            )
            given = self._linear(f"{block}ffn_down", self._gated(gate, up))
        return self._norm_if(f"{block}post_ffw_norm", given)

    def _experts(self, block: str, rows: Tensor) -> Tensor:
        """Each of ``rows`` ``[n, width]`` goes through the experts that its router finds likeliest."""
        experts = Experts(*(self.weights[f"{block}ffn_{part}_exps.weight"] for part in ("gate", "up", "down")))
        chances = torch.softmax(self._linear(f"{block}ffn_gate_inp", rows), dim=-1)
        share, chosen = chances.topk(self.shape.build.experts, dim=-1)
        return self._ops(rows).experts(rows, chosen, share / share.sum(dim=-1, keepdim=True), experts, self._gated)

    def _linear(self, name: str, x: Tensor) -> Tensor:
        return self._times(x, self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias"))

    def _times(self, x: Tensor, matrix: Weight, bias: Tensor | None = None) -> Tensor:
        if not isinstance(matrix, Planes):
            return F.linear(x, matrix, bias)
        product = self._ops(x).matmul(x, matrix)
        return product if bias is None else product + bias

    def _ops(self, x: Tensor) -> Ops:
        return self.ops if x.device == self._home else PLAIN

    def _gated(self, gate: Tensor, up: Tensor) -> Tensor:
        return self._ops(up).gated(gate, up, gelu=self.shape.build.gelu)

    def _add_norm(self, x: Tensor, carried: Tensor, name: str) -> tuple[Tensor, Tensor]:
        """The sum, and its norm."""
        return self._ops(x).add_norm(x, carried, self.weights[f"{name}.weight"], self.shape.eps)

    def _norm(self, name: str, x: Tensor) -> Tensor:
        return self._ops(x).norm(x, self.weights[f"{name}.weight"], self.shape.eps)

    def _norm_if(self, name: str, x: Tensor) -> Tensor:
        """Some architectures norm here."""
        return self._norm(name, x) if f"{name}.weight" in self.weights else x


def read_header_and_shape(path: Path, rope: RopeOptions | None = None) -> tuple[Header, Shape]:
    """What a GGUF file says of its model, without its tensors. As `TorchLlama.of_file`."""
    header, sizes, n_vocab = read_sizes(path, ARCHITECTURES, LLAMACPP)
    return header, read_shape(header, sizes, n_vocab, rope or RopeOptions())
