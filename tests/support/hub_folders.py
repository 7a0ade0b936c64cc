"""Tiny random checkpoints as they lie on the Hugging Face hub, and the same weights computed plainly in numpy."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.gguf_files import TokenizerKeys
from tests.support.plain_layers import LLAMA3, Array, attended, gated, halves_turned, norm, silu, slowed
from tests.support.random_weights import matrix, scales

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")

Layout = Literal["medusa-1", "shared", "medusa-2", "vllm"]


def write_folder(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]], *, file: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    weights = {name: torch.from_numpy(np.ascontiguousarray(tensor)) for name, tensor in tensors.items()}
    if file.endswith(".safetensors"):
        from safetensors.torch import save_file

        save_file(weights, folder / file)
    else:
        torch.save(weights, folder / file)
    return folder


@dataclass(frozen=True)
class TinyMedusa:
    """``shared``: the heads have no unembedding of their own and use the target's."""

    n_vocab: int
    width: int
    heads: int = 3
    layers: int = 2
    layout: Layout = "medusa-1"
    seed: int = 0

    @cached_property
    def blocks(self) -> list[list[tuple[Array, Array]]]:
        rng = np.random.default_rng([self.seed, 1])
        has_bias = self.layout != "vllm"
        return [
            [
                (matrix(rng, self.width, self.width), rng.standard_normal(self.width, np.float32) * has_bias)
                for _ in range(self.layers)
            ]
            for _ in range(self.heads)
        ]

    @cached_property
    def outs(self) -> list[Array]:
        rng = np.random.default_rng([self.seed, 2])
        return [matrix(rng, self.n_vocab, self.width) * np.float32(3) for _ in range(self.heads)]

    def rows(self, state: Array, unembedding: Array | None = None) -> list[Array]:
        """Scores of each head; ``unembedding`` is the target's."""
        rows = []
        for blocks, own in zip(self.blocks, self.outs, strict=True):
            x = state
            for weight, bias in blocks:
                x = x + silu(weight @ x + bias)
            out = unembedding if self.layout == "shared" else own
            assert out is not None
            rows.append(out @ x)
        return rows

    def write(self, folder: Path) -> Path:
        tensors: dict[str, Array] = {}
        before = "medusa_head." if self.layout == "medusa-2" else ""
        for h, (blocks, out) in enumerate(zip(self.blocks, self.outs, strict=True)):
            for b, (weight, bias) in enumerate(blocks):
                if self.layout == "vllm":
                    tensors[f"blocks.{h}.layers.{b}.weight"] = weight
                else:
                    tensors[f"{before}{h}.{b}.linear.weight"] = weight
                    tensors[f"{before}{h}.{b}.linear.bias"] = bias
            if self.layout == "vllm":
                tensors[f"lm_heads.{h}.weight"] = out
            elif self.layout != "shared":
                tensors[f"{before}{h}.{self.layers}.weight"] = out
        if self.layout == "medusa-2":  # the tuned model is in there too
            tensors["model.layers.0.mlp.up_proj.weight"] = self.outs[0][:4]
            tensors["lm_head.weight"] = self.outs[0][::-1]
        config = {"medusa_num_heads": self.heads, "medusa_num_layers": self.layers}
        file = "medusa_lm_head.pt" if self.layout in ("medusa-1", "shared") else "model.safetensors"
        return write_folder(folder, config, tensors, file=file)


@dataclass(frozen=True)
class TinyHydra:
    n_vocab: int
    width: int
    heads: int = 3
    layers: int = 2
    seed: int = 0

    @cached_property
    def tensors(self) -> dict[str, Array]:
        rng = np.random.default_rng(self.seed)
        tensors = {}
        for h in range(self.heads):
            for b in range(self.layers):
                reads = self.width * (h + 2) if b == 0 else self.width
                for part in ("linear", "res_connection") if b == 0 else ("linear",):
                    tensors[f"hydra_mlp.{h}.{b}.{part}.weight"] = matrix(rng, self.width, reads)
                    tensors[f"hydra_mlp.{h}.{b}.{part}.bias"] = rng.standard_normal(self.width, np.float32)
            tensors[f"hydra_lm_head.{h}.weight"] = matrix(rng, self.n_vocab, self.width) * np.float32(3)
            tensors[f"hydra_lm_head.{h}.bias"] = rng.standard_normal(self.n_vocab, np.float32)
        return tensors

    def row(self, state: Array, embedding: Array, tokens: Sequence[int]) -> Array:
        """Scores behind ``tokens``, the first of which is the pending one."""
        h, t = len(tokens) - 1, self.tensors
        x = np.concatenate([state, *embedding[list(tokens)]])
        for b in range(self.layers):
            name = f"hydra_mlp.{h}.{b}"
            beside = x
            if b == 0:
                beside = t[f"{name}.res_connection.weight"] @ x + t[f"{name}.res_connection.bias"]
            x = beside + silu(t[f"{name}.linear.weight"] @ x + t[f"{name}.linear.bias"])
        row: Array = t[f"hydra_lm_head.{h}.weight"] @ x + t[f"hydra_lm_head.{h}.bias"]
        return row

    def write(self, folder: Path) -> Path:
        config = {"hydra_num_heads": self.heads, "hydra_num_layers": self.layers, "hydra_head_arch": "mlp"}
        return write_folder(folder, config, self.tensors, file="hydra_lm_head.pt")


@dataclass(frozen=True)
class TinyHub:
    """A decoder of the llama build, by the hub's names. ``kind`` qwen2 has biases, qwen3 normed heads; ``scaled``:
    Llama 3.1's slower waves."""

    n_vocab: int
    kind: Literal["llama", "qwen2", "qwen3"] = "llama"
    scaled: bool = False
    width: int = 32
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    each: int = 8
    mask: int | None = None
    seed: int = 0
    base: float = field(default=500.0)

    @cached_property
    def tensors(self) -> dict[str, Array]:
        rng = np.random.default_rng(self.seed)
        tensors = {
            "model.embed_tokens.weight": matrix(rng, self.n_vocab, self.width) * np.float32(6),
            "model.norm.weight": scales(rng, self.width),
            "lm_head.weight": matrix(rng, self.n_vocab, self.width) * np.float32(4),
        }
        for layer in range(self.layers):
            before = f"model.layers.{layer}."
            for part, heads in (("q", self.heads), ("k", self.kv_heads), ("v", self.kv_heads)):
                tensors[f"{before}self_attn.{part}_proj.weight"] = matrix(rng, heads * self.each, self.width)
                if self.kind == "qwen2":
                    tensors[f"{before}self_attn.{part}_proj.bias"] = rng.standard_normal(heads * self.each, np.float32)
                if self.kind == "qwen3" and part != "v":
                    tensors[f"{before}self_attn.{part}_norm.weight"] = scales(rng, self.each)
            tensors |= {
                f"{before}self_attn.o_proj.weight": matrix(rng, self.width, self.heads * self.each),
                f"{before}input_layernorm.weight": scales(rng, self.width),
                f"{before}post_attention_layernorm.weight": scales(rng, self.width),
                f"{before}mlp.gate_proj.weight": matrix(rng, 2 * self.width, self.width),
                f"{before}mlp.up_proj.weight": matrix(rng, 2 * self.width, self.width),
                f"{before}mlp.down_proj.weight": matrix(rng, self.width, 2 * self.width),
            }
        return tensors

    @property
    def config(self) -> dict[str, Any]:
        config: dict[str, Any] = {
            "model_type": self.kind,
            "hidden_size": self.width,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.each,
            "intermediate_size": 2 * self.width,
            "vocab_size": self.n_vocab,
            "rms_norm_eps": 1e-5,
            "rope_theta": self.base,
            "max_position_embeddings": 512,
        }
        if self.scaled:
            config["rope_scaling"] = dict(LLAMA3)
        return config if self.mask is None else {**config, "pard_token": self.mask}

    def write(self, folder: Path, tokenizer: TokenizerKeys | None = None) -> Path:
        write_folder(folder, self.config, self.tensors, file="model.safetensors")
        if tokenizer is not None:
            vocab = {text: token for token, text in enumerate(tokenizer.tokens)}
            (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocab}, "added_tokens": []}))
        return folder

    def logits(self, tokens: Sequence[int]) -> Array:
        """Scores behind each of ``tokens``: ``[n, n_vocab]``."""
        t, n = self.tensors, len(tokens)
        x = t["model.embed_tokens.weight"][list(tokens)]
        for layer in range(self.layers):
            before = f"model.layers.{layer}."

            def part(read: Array, name: str, heads: int, before: str = before) -> Array:
                found = read @ t[f"{before}self_attn.{name}_proj.weight"].T
                found = found + t.get(f"{before}self_attn.{name}_proj.bias", np.float32(0))
                found = found.reshape(n, heads, self.each)
                weight = t.get(f"{before}self_attn.{name}_norm.weight")
                found = found if weight is None else norm(found, weight)
                return found if name == "v" else self._turned(found)

            read = norm(x, t[f"{before}input_layernorm.weight"])
            query, key, value = (
                part(read, "q", self.heads),
                part(read, "k", self.kv_heads),
                part(read, "v", self.kv_heads),
            )
            mixed = attended(query, key, value, np.tri(n, dtype=bool))
            x = x + mixed @ t[f"{before}self_attn.o_proj.weight"].T
            read = norm(x, t[f"{before}post_attention_layernorm.weight"])
            x = x + gated(read, *(t[f"{before}mlp.{name}_proj.weight"] for name in ("gate", "up", "down")))
        logits: Array = norm(x, t["model.norm.weight"]) @ t["lm_head.weight"].T
        return logits

    def _turned(self, rows: Array) -> Array:
        waves = self.base ** (-np.arange(0, self.each, 2) / self.each)
        if self.scaled:
            waves = np.array([slowed(wave, LLAMA3) for wave in waves])
        return halves_turned(rows, np.arange(len(rows)), waves)
