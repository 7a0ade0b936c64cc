"""Tiny random EAGLE-3 heads: GGUF files, and the same weights computed plainly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from tests.support.gguf_files import TokenizerKeys, describe_decoder, write_gguf
from tests.support.plain_layers import Array, ancestry, attended, gated, norm, pairs_turned
from tests.support.random_weights import matrix as random_matrix
from tests.support.random_weights import scales as random_scales


@dataclass(frozen=True)
class TinyHead:
    """A random head for a target of ``target_width`` that has ``n_vocab`` tokens.

    Args:
        layers: the target's layers whose inputs it reads.
        guessable: ids that it can guess, in ascending order; ``None`` = all.
        norm_before_residual: the residual stream starts with the *normed* state.
    """

    n_vocab: int
    target_width: int
    layers: tuple[int, int, int]
    width: int = 64
    heads: int = 4
    kv_heads: int = 2
    guessable: tuple[int, ...] | None = None
    norm_before_residual: bool = False
    n_ctx: int = 2048
    seed: int = 0

    @cached_property
    def tensors(self) -> dict[str, Array]:
        rng = np.random.default_rng(self.seed)
        matrix, scales = partial(random_matrix, rng), partial(random_scales, rng, self.width)
        width, each = self.width, self.width // self.heads
        return {
            "fc.weight": matrix(width, 3 * self.target_width),
            "blk.0.attn_norm.weight": scales(),
            "blk.0.attn_norm_2.weight": scales(),
            "blk.0.attn_q.weight": matrix(width, 2 * width),
            "blk.0.attn_k.weight": matrix(self.kv_heads * each, 2 * width),
            "blk.0.attn_v.weight": matrix(self.kv_heads * each, 2 * width),
            "blk.0.attn_output.weight": matrix(width, width),
            "blk.0.ffn_norm.weight": scales(),
            "blk.0.ffn_gate.weight": matrix(2 * width, width),
            "blk.0.ffn_up.weight": matrix(2 * width, width),
            "blk.0.ffn_down.weight": matrix(width, 2 * width),
            "output_norm.weight": scales(),
            "token_embd.weight": matrix(self.n_vocab, width),
            "output.weight": matrix(len(self.guessable or range(self.n_vocab)), width) * np.float32(3),
        }

    def write(self, path: Path, tokenizer: TokenizerKeys) -> Path:
        def describe(writer: Any) -> None:
            describe_decoder(writer, "tiny random head", self, 1)
            writer.add_key_value(
                "eagle3.target_layers", list(self.layers), gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.INT32
            )
            writer.add_uint32("eagle3.target_hidden_size", self.target_width)
            writer.add_bool("eagle3.norm_before_residual", self.norm_before_residual)

        ids = {} if self.guessable is None else {"d2t": np.array(self.guessable, np.int64)}
        return write_gguf(path, "eagle3", tokenizer, {**self.tensors, **ids}, describe)

    def encode(self, features: Array) -> Array:
        """States ``[n, width]`` from features ``[n, 3 · target_width]``."""
        states: Array = features @ self.tensors["fc.weight"].T
        return states

    def states_and_logits(
        self, tokens: Sequence[int], states: Array, parents: Sequence[int] | None = None
    ) -> tuple[Array, Array]:
        """What each row carries on ``[n, width]``, and its scores by the target's ids ``[n, n_vocab]``.

        Row i is token ``tokens[i]`` with the state ``states[i]``, behind row ``parents[i]`` (the row before).
        """
        weights = self.tensors
        n, each = len(tokens), self.width // self.heads
        seen, depths = ancestry(range(-1, n - 1) if parents is None else parents)
        normed = norm(states, weights["blk.0.attn_norm_2.weight"])
        embedded = norm(weights["token_embd.weight"][list(tokens)], weights["blk.0.attn_norm.weight"])
        read = np.concatenate([embedded, normed], axis=1)
        query = pairs_turned((read @ weights["blk.0.attn_q.weight"].T).reshape(n, self.heads, each), depths)
        key = pairs_turned((read @ weights["blk.0.attn_k.weight"].T).reshape(n, self.kv_heads, each), depths)
        value = (read @ weights["blk.0.attn_v.weight"].T).reshape(n, self.kv_heads, each)
        mixed = attended(query, key, value, seen) @ weights["blk.0.attn_output.weight"].T
        carried = (normed if self.norm_before_residual else states) + mixed
        inner = norm(carried, weights["blk.0.ffn_norm.weight"])
        carried = carried + gated(inner, *(weights[f"blk.0.ffn_{part}.weight"] for part in ("gate", "up", "down")))
        own = norm(carried, weights["output_norm.weight"]) @ weights["output.weight"].T
        logits = np.full((n, self.n_vocab), -np.inf, np.float32)
        logits[:, list(self.guessable or range(self.n_vocab))] = own
        return carried.astype(np.float32), logits
