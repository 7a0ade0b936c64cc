"""An EAGLE-3 head in training (arXiv 2503.01840): one decoder layer over the target's states, taught in the way it will
be used.

Training-time test: after the states of the text it is fed its own, `depth` times in a row, and is to be right each
time. In round k row t holds token t + 1 + k; it sees the text's rows up to t, and its own rounds 1…k at t.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from localspec.backends.torch.eagle_weights import EagleWeights, HeadShape, usual_layers
from localspec.backends.torch.kernels.norm import norm_plainly as norm
from localspec.backends.torch.llama import TorchLlama
from localspec.backends.torch.rope import cos_and_sin, rotated
from localspec.backends.torch.sizes import Shape

_BLOCK = "blk.0."
#: Parts around the layer; all others are in it.
_OUTSIDE = ("fc", "output_norm", "output")


def layers_read(target: Shape) -> tuple[int, ...]:
    """The usual layers, as far as a small target has them."""
    return tuple(min(max(layer, 0), target.layers - 1) for layer in usual_layers(target.layers))


class Eagle3(nn.Module):
    """The weights, named as in a GGUF file.

    Args:
        reads: the target's layers whose inputs it reads.
        ids: the tokens that it can guess, ascending.
    """

    def __init__(self, shape: HeadShape, target_width: int, reads: Sequence[int], ids: Sequence[int]) -> None:
        super().__init__()
        self.shape, self.target_width = shape, target_width
        self.reads, self.ids = tuple(reads), tuple(ids)
        width, q, kv = shape.width, shape.heads * shape.each, shape.kv_heads * shape.each
        self.fc = _linear(len(self.reads) * target_width, width)
        self.attn_norm = nn.Parameter(torch.ones(width))
        self.attn_norm_2 = nn.Parameter(torch.ones(width))
        self.attn_q = _linear(2 * width, q)
        self.attn_k = _linear(2 * width, kv)
        self.attn_v = _linear(2 * width, kv)
        self.attn_output = _linear(q, width)
        self.ffn_norm = nn.Parameter(torch.ones(width))
        self.ffn_gate = _linear(width, shape.inner)
        self.ffn_up = _linear(width, shape.inner)
        self.ffn_down = _linear(shape.inner, width)
        self.output_norm = nn.Parameter(torch.ones(width))
        self.output = _linear(width, len(self.ids))

    @classmethod
    def fitting(cls, target: Shape, ids: Sequence[int]) -> Eagle3:
        """A fresh one as wide as the target, reading its usual layers."""
        return cls(HeadShape.like(target, layers=1), target.width, layers_read(target), ids)

    @classmethod
    def of(cls, head: EagleWeights) -> Eagle3:
        """One that was trained before.

        Raises:
            ValueError: it has other parts.
        """
        if head.ids is None or not head.is_third or head.norm_before_residual or head.shape.factors is not None:
            raise ValueError("another form")
        one = cls(head.shape, head.target_width, head.reads, head.ids.tolist())
        named = {_short(key): weight for key, weight in head.weights.items()}
        sizes = {name: weight.shape for name, weight in one.state_dict().items()}
        if {name: weight.shape for name, weight in named.items()} != sizes:
            raise ValueError("other weights")
        one.load_state_dict(named)
        return one

    def trained(self, weights: Mapping[str, Tensor]) -> EagleWeights:
        """``weights``, named as its own, as a head."""
        return EagleWeights(
            shape=self.shape,
            weights={f"{name if name in _OUTSIDE else _BLOCK + name}.weight": one for name, one in weights.items()},
            reads=self.reads,
            target_width=self.target_width,
            n_ctx_train=0,
            ids=np.array(self.ids, np.int64),
        )

    @torch.no_grad()
    def begin_from(self, target: TorchLlama) -> None:
        """Starts as the target's last layer, which reads its state and knows no token yet: it knows what scores are
        made of, and has only to learn to look a token further."""
        last, width = target.shape.layers - 1, self.shape.width
        for name in ("attn_q", "attn_k", "attn_v"):
            weight = getattr(self, name)
            weight[:, :width].normal_(0, 0.2 / width**0.5)
            weight[:, width:] = target.block(last, name)
        for name in ("attn_output", "ffn_gate", "ffn_up", "ffn_down", "ffn_norm"):
            getattr(self, name).copy_(target.block(last, name))
        self.attn_norm_2.copy_(target.block(last, "attn_norm"))
        self.output_norm.copy_(target.weights["output_norm.weight"])
        self.output.copy_(target.unembedding[list(self.ids)])
        self.fc.normal_(0, 0.02 / width**0.5)
        self.fc[:, 2 * width :] += torch.eye(width)

    def states(
        self, embedded: Tensor, features: Tensor, depth: int, rows: Tensor | None = None
    ) -> list[tuple[Tensor, Tensor]]:
        """The rows that each round k = 0…depth - 1 has, and their states ``[texts, rows, width]``.

        Args:
            embedded: the target's embeddings of tokens 1…n of each text, ``[texts, n, width]``.
            features: the target's hidden states behind tokens 0…n - 1, ``[texts, n, 3 · target's width]``.
            rows: of later rounds, ascending, below n - depth + 1; ``None``: all of them. They do not see each other, so
                learning from some of them costs less and errs in nothing but noise.
        """
        n = features.shape[1]
        found = list[tuple[Tensor, Tensor]]()
        keys, values = list[Tensor](), list[Tensor]()
        at, state = torch.arange(n), features @ self.fc.T
        for k in range(depth):
            if k == 1:
                at = torch.arange(n - depth + 1) if rows is None else rows
                state = state[:, at]
            state = self._round(embedded[:, at + k], state, at, k, keys, values)
            found.append((at, state))
        return found

    def scores(self, state: Tensor) -> Tensor:
        """Scores over `ids` behind states."""
        return norm(state, self.output_norm, self.shape.eps) @ self.output.T

    def _round(
        self, embedded: Tensor, state: Tensor, at: Tensor, k: int, keys: list[Tensor], values: list[Tensor]
    ) -> Tensor:
        shape, (texts, n, _) = self.shape, state.shape
        read = torch.cat((norm(embedded, self.attn_norm, shape.eps), norm(state, self.attn_norm_2, shape.eps)), dim=-1)
        turn = cos_and_sin(at + k, shape.turns)
        q = rotated((read @ self.attn_q.T).view(texts, n, shape.heads, shape.each).transpose(1, 2), turn)
        key = rotated((read @ self.attn_k.T).view(texts, n, shape.kv_heads, shape.each).transpose(1, 2), turn)
        value = (read @ self.attn_v.T).view(texts, n, shape.kv_heads, shape.each).transpose(1, 2)
        shared = shape.heads // shape.kv_heads
        keys.append(key.repeat_interleave(shared, 1))
        values.append(value.repeat_interleave(shared, 1))
        mixed = self._attend(q, at, keys, values)
        state = state + mixed.transpose(1, 2).reshape(texts, n, -1) @ self.attn_output.T
        inner = norm(state, self.ffn_norm, shape.eps)
        return state + (F.silu(inner @ self.ffn_gate.T) * (inner @ self.ffn_up.T)) @ self.ffn_down.T

    def _attend(self, q: Tensor, at: Tensor, keys: list[Tensor], values: list[Tensor]) -> Tensor:
        """The text's rows up to each row's own, and this row of every later round."""
        if len(keys) == 1:
            return F.scaled_dot_product_attention(q, keys[0], values[0], is_causal=True)
        n, scale = keys[0].shape[2], self.shape.each**-0.5
        text = (q @ keys[0].transpose(2, 3)).masked_fill(torch.arange(n) > at[:, None], -torch.inf)
        own = torch.stack([(q * key).sum(-1) for key in keys[1:]], dim=-1)
        share = torch.softmax(torch.cat((text, own), dim=-1) * scale, dim=-1)
        mixed = share[..., :n] @ values[0]
        for place, value in enumerate(values[1:]):
            mixed = mixed + share[..., n + place, None] * value
        return mixed


def _linear(takes: int, gives: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(gives, takes) / takes**0.5)


def _short(key: str) -> str:
    """The name of a part of a head here."""
    return key.removesuffix(".weight").removeprefix(_BLOCK)
