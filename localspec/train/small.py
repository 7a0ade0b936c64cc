"""A small llama in training, with its target's tokens: a draft model where none exists."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from localspec.backends.torch.llama import TorchLlama
from localspec.backends.torch.sizes import Shape
from localspec.train.learner import CHAIN, sparse_cross_entropy
from localspec.train.notes import Notes

#: Width of one head of attention, and how much wider a layer is inside.
_EACH, _INNER = 64, 3
#: Share of the rows that a step learns from: all of them share one pass, and scores of the whole vocabulary cost more.
_ASKED = 0.5
#: Standard deviation of the first scores.
_SCORES = 1.0


def small_shape(target: Shape, width: int, layers: int) -> Shape:
    """A shape of a model with the tokens of ``target``; half of its heads have keys of their own."""
    heads = max(2, width // _EACH)
    return Shape(
        layers=layers,
        width=width,
        heads=heads,
        kv_heads=heads // 2,
        each=width // heads,
        inner=_INNER * width,
        n_vocab=target.n_vocab,
        eps=target.eps,
        rope_base=10000.0,
    )


class Small(nn.Module):
    """The weights, named as in a GGUF file; one table of tokens for both ends."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        width, q, kv = shape.width, shape.heads * shape.each, shape.kv_heads * shape.each
        self.token_embd = nn.Parameter(torch.randn(shape.n_vocab, width) / width**0.5)
        self.output_norm = nn.Parameter(torch.full((width,), _SCORES))
        self.blk = nn.ModuleList(
            nn.ParameterDict(
                {
                    "attn_norm": torch.ones(width),
                    "attn_q": _matrix(q, width),
                    "attn_k": _matrix(kv, width),
                    "attn_v": _matrix(kv, width),
                    "attn_output": _matrix(width, q) / (2 * shape.layers) ** 0.5,
                    "ffn_norm": torch.ones(width),
                    "ffn_gate": _matrix(shape.inner, width),
                    "ffn_up": _matrix(shape.inner, width),
                    "ffn_down": _matrix(width, shape.inner) / (2 * shape.layers) ** 0.5,
                }
            )
            for _ in range(shape.layers)
        )

    @torch.no_grad()
    def begin_from(self, target: TorchLlama) -> None:
        """Starts with what the target's table of scores says of tokens, in the directions in which they differ most."""
        table = target.unembedding - target.unembedding.mean(dim=0)
        _, directions = torch.linalg.eigh(table.T @ table)
        best = directions[:, -min(self.shape.width, directions.shape[1]) :]
        self.token_embd.zero_()
        self.token_embd[:, : best.shape[1]] = table @ best
        self.token_embd /= self.token_embd.norm(dim=1).mean()

    def forward(self, tokens: Tensor) -> Tensor:
        """Hidden states behind the last norm, ``[texts, n, width]``."""
        weights = {f"{name}.weight": one for name, one in self.named_parameters()}
        return TorchLlama(self.shape, weights).compute(tokens).hidden


@dataclass(frozen=True, slots=True)
class SmallLearner:
    """``module`` learns what the target says. Row j reads token j and guesses token j + 1."""

    module: Small

    def loss(self, notes: Notes, rng: np.random.Generator) -> Tensor:
        """As `Learner.loss`."""
        weight = notes.weight[:, 1:] * torch.from_numpy(rng.random(notes.weight[:, 1:].shape) < _ASKED)
        counts = weight > 0
        hidden = self.module(notes.tokens)[:, :-1][counts]
        each = sparse_cross_entropy(
            hidden @ self.module.token_embd.T, notes.ids[:, :-1][counts], notes.shares[:, :-1][counts]
        )
        return (each * weight[counts]).sum() / weight.sum().clamp(min=1)

    def guesses(self, notes: Notes) -> Tensor:
        """As `Learner.guesses`."""
        texts, n = notes.tokens.shape
        best = torch.stack([(hidden @ self.module.token_embd.T).argmax(dim=-1) for hidden in self.module(notes.tokens)])
        found = torch.full((texts, n, CHAIN), -1)
        for k in range(CHAIN):
            start, stop = max(1 - k, 0), min(n, n - k + 1)
            found[:, start:stop, k] = best[:, start + k - 1 : stop + k - 1]
        return found


def _matrix(gives: int, takes: int) -> Tensor:
    return torch.randn(gives, takes) / takes**0.5
