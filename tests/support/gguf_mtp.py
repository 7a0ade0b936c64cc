"""Tiny random models that carry layers for multi-token prediction: GGUF files, and these layers computed plainly.

The architecture is MiMo-V2: of those whose layers llama.cpp runs it is the one without experts that has several.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.gguf_files import TokenizerKeys, describe_decoder, write_gguf
from tests.support.plain_layers import Array, ancestry, attended, gated, halves_turned, norm
from tests.support.random_weights import matrix as random_matrix
from tests.support.random_weights import scales as random_scales


@dataclass(frozen=True)
class TinyMtp:
    """A random model.

    Args:
        predictors: layers for multi-token prediction; the first guesses from the model's states.
        leaves_out: what names of tensors that are left out of the file start with.
        architecture: what the file calls itself.
    """

    n_vocab: int
    predictors: int = 1
    layers: int = 2
    width: int = 64
    heads: int = 4
    kv_heads: int = 2
    n_ctx: int = 2048
    seed: int = 0
    leaves_out: tuple[str, ...] = ()
    architecture: str = "mimo2"

    @cached_property
    def tensors(self) -> dict[str, Array]:
        rng = np.random.default_rng(self.seed)
        matrix, scales = partial(random_matrix, rng), partial(random_scales, rng, self.width)
        width, each = self.width, self.width // self.heads
        tensors = {
            "token_embd.weight": matrix(self.n_vocab, width) * np.float32(np.sqrt(width)),
            "output_norm.weight": scales(),
            "output.weight": matrix(self.n_vocab, width) * np.float32(4),
        }
        for layer in range(self.layers + self.predictors):
            block = {
                "attn_norm.weight": scales(),
                "attn_qkv.weight": matrix((self.heads + 2 * self.kv_heads) * each, width),
                "attn_output.weight": matrix(width, width),
                "ffn_norm.weight": scales(),
                "ffn_gate.weight": matrix(2 * width, width),
                "ffn_up.weight": matrix(2 * width, width),
                "ffn_down.weight": matrix(width, 2 * width),
            }
            if layer >= self.layers:
                block |= {
                    "nextn.eh_proj.weight": matrix(width, 2 * width),
                    "nextn.enorm.weight": scales(),
                    "nextn.hnorm.weight": scales(),
                    "nextn.shared_head_norm.weight": scales(),
                }
            tensors |= {f"blk.{layer}.{name}": weights for name, weights in block.items()}
        return tensors

    def write(self, path: Path, tokenizer: TokenizerKeys) -> Path:
        def describe(writer: Any) -> None:
            layers = self.layers + self.predictors
            describe_decoder(writer, "tiny random predictor", self, layers)
            writer.add_nextn_predict_layers(self.predictors)
            writer.add_float32(f"{self.architecture}.rope.freq_base_swa", 10000.0)
            writer.add_expert_feed_forward_length(self.width)  # of no experts, but asked for
            # Wider than any text of a test: some layer must have a window.
            writer.add_sliding_window(1024)
            writer.add_sliding_window_pattern([layer >= self.layers for layer in range(layers)])

        kept = {name: weights for name, weights in self.tensors.items() if not name.startswith(self.leaves_out)}
        return write_gguf(path, self.architecture, tokenizer, kept, describe)

    def carried(
        self, tokens: Sequence[int], states: Array, parents: Sequence[int] | None = None, *, predictor: int = 0
    ) -> Array:
        """What a predictor carries on from each row, ``[n, width]``.

        Row i is token ``tokens[i]`` with the state ``states[i]``, behind row ``parents[i]`` (the row before).
        """
        own = self._own(predictor)
        n, each = len(tokens), self.width // self.heads
        seen, depths = ancestry(range(-1, n - 1) if parents is None else parents)
        embedded = norm(self.tensors["token_embd.weight"][list(tokens)], own["nextn.enorm.weight"])
        read = np.concatenate([embedded, norm(states, own["nextn.hnorm.weight"])], axis=1)
        carried = read @ own["nextn.eh_proj.weight"].T
        parts = (norm(carried, own["attn_norm.weight"]) @ own["attn_qkv.weight"].T).reshape(n, -1, each)
        query, key, value = np.split(parts, [self.heads, self.heads + self.kv_heads], axis=1)
        mixed = attended(halves_turned(query, depths), halves_turned(key, depths), value, seen)
        carried = carried + mixed @ own["attn_output.weight"].T
        inner = norm(carried, own["ffn_norm.weight"])
        carried = carried + gated(inner, *(own[f"ffn_{part}.weight"] for part in ("gate", "up", "down")))
        return carried.astype(np.float32)

    def logits(self, carried: Array, *, predictor: int = 0) -> Array:
        """The predictor's scores ``[n, n_vocab]``."""
        normed = norm(carried, self._own(predictor)["nextn.shared_head_norm.weight"])
        scores: Array = normed @ self.tensors["output.weight"].T
        return scores

    def _own(self, predictor: int) -> dict[str, Array]:
        block = f"blk.{self.layers + predictor}."
        return {name.removeprefix(block): rows for name, rows in self.tensors.items() if name.startswith(block)}
