"""Tiny random EAGLE heads as they lie on the hub, and the same weights computed plainly in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tests.support.hub_folders import write_folder
from tests.support.plain_layers import Array, norm, silu, slowed
from tests.support.random_weights import matrix, scales

Kind = Literal["eagle", "eagle3"]
Layout = Literal["official", "specforge", "speculators"]


@dataclass(frozen=True)
class TinyEagle:
    """A random head for a target of ``target_width``, ``layers`` layers and ``n_vocab`` tokens.

    Args:
        reads: the target's layers whose inputs an EAGLE-3 head reads; ``None`` leaves them out of the config.
        guessable: ids that it scores, in ascending order; ``None`` = all, by the target's unembedding.
        embeds: it has embeddings of its own.
        biases: of fc, and of queries, keys and values.
        rope: what its config says of positions.
    """

    n_vocab: int
    target_width: int
    layers: int
    kind: Kind = "eagle3"
    layout: Layout = "official"
    width: int = 64
    heads: int = 4
    kv_heads: int = 2
    reads: tuple[int, ...] | None = None
    guessable: tuple[int, ...] | None = None
    embeds: bool = False
    biases: bool = False
    norm_before_residual: bool = False
    norm_before_fc: bool = False
    norm_output: bool = False
    rope: tuple[tuple[str, Any], ...] = ()
    seed: int = 0

    @property
    def is_third(self) -> bool:
        return self.kind == "eagle3"

    @property
    def n_read(self) -> int:
        return 1 if not self.is_third else len(self.reads or (0, 0, 0))

    @cached_property
    def tensors(self) -> dict[str, Array]:
        """By the official names."""
        rng = np.random.default_rng(self.seed)
        width, each = self.width, self.width // self.heads
        reads = 2 * width if self.is_third else width
        layer = "midlayer." if self.is_third else "layers.0."
        tensors = {
            "fc.weight": matrix(rng, width, self.n_read * self.target_width + (0 if self.is_third else width)),
            f"{layer}self_attn.q_proj.weight": matrix(rng, width, reads),
            f"{layer}self_attn.k_proj.weight": matrix(rng, self.kv_heads * each, reads),
            f"{layer}self_attn.v_proj.weight": matrix(rng, self.kv_heads * each, reads),
            f"{layer}self_attn.o_proj.weight": matrix(rng, width, width),
            f"{layer}post_attention_layernorm.weight": scales(rng, width),
            f"{layer}mlp.gate_proj.weight": matrix(rng, 2 * width, width),
            f"{layer}mlp.up_proj.weight": matrix(rng, 2 * width, width),
            f"{layer}mlp.down_proj.weight": matrix(rng, width, 2 * width),
        }
        if self.is_third:
            tensors |= {f"{layer}{name}.weight": scales(rng, width) for name in ("input_layernorm", "hidden_norm")}
            tensors["norm.weight"] = scales(rng, width)
            if self.norm_before_fc:
                tensors["input_norm.weight"] = scales(rng, self.n_read * self.target_width)
        if self.guessable is not None:
            tensors["lm_head.weight"] = matrix(rng, len(self.guessable), width) * np.float32(3)
        if self.embeds:
            tensors["embed_tokens.weight"] = matrix(rng, self.n_vocab, width)
        if self.biases:
            for name in ("fc", *(f"{layer}self_attn.{part}_proj" for part in "qkv")):
                rows = len(tensors[f"{name}.weight"])
                tensors[f"{name}.bias"] = rng.standard_normal(rows, np.float32) / np.float32(5)
        return tensors

    def write(self, folder: Path, *, file: str = "model.safetensors", **changes: Any) -> Path:
        """``changes`` are further entries of the config."""
        tensors: dict[str, NDArray[Any]] = dict(self.tensors)
        if self.guessable is not None:
            ids = np.array(self.guessable, np.int64)
            tensors["d2t"] = ids - np.arange(len(ids))
            tensors["t2d"] = np.isin(np.arange(self.n_vocab), ids)
        if self.layout == "speculators":
            tensors = {name.replace("midlayer.", "layers.0."): weight for name, weight in tensors.items()}
        return write_folder(folder, {**self._config(), **changes}, tensors, file=file)

    def _config(self) -> dict[str, Any]:
        layer: dict[str, Any] = {
            "model_type": "llama",
            "hidden_size": self.width,
            "intermediate_size": 2 * self.width,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "num_hidden_layers": 1,
            "max_position_embeddings": 2048,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "vocab_size": self.n_vocab,
        }
        if self.rope:
            layer["rope_scaling"] = dict(self.rope)
        if not self.is_third:
            return {**layer, "architectures": ["LlamaForCausalLM"], "bias": self.biases}
        flags = ("norm_before_residual", "norm_before_fc", "norm_output")
        config = {flag: True for flag in flags if getattr(self, flag)} | {"target_hidden_size": self.target_width}
        if self.guessable is not None:
            config["draft_vocab_size"] = len(self.guessable)
        if self.layout == "speculators":
            named = {} if self.reads is None else {"eagle_aux_hidden_state_layer_ids": list(self.reads)}
            return {
                **config,
                **named,
                "architectures": ["Eagle3Speculator"],
                "speculators_model_type": "eagle3",
                "transformer_layer_config": layer,
            }
        outputs = [] if self.reads is None else [layer - 1 for layer in self.reads]
        inner = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": outputs}} if outputs else {}
        return {**layer, **config, **inner, "architectures": ["LlamaForCausalLMEagle3"]}

    def encode(self, features: Array) -> Array:
        """States ``[n, …]`` from features ``[n, n_read · target_width]``."""
        if not self.is_third:
            return features
        if self.norm_before_fc:
            features = norm(features, self.tensors["input_norm.weight"])
        states: Array = features @ self.tensors["fc.weight"].T
        return states + self.tensors.get("fc.bias", np.float32(0))

    def states_and_logits(
        self,
        tokens: Sequence[int],
        states: Array,
        embedding: Array,
        unembedding: Array,
        parents: Sequence[int] | None = None,
    ) -> tuple[Array, Array]:
        """What each row carries on, and its scores by the target's ids ``[n, n_vocab]``. Row i is token ``tokens[i]``
        with the state ``states[i]``, behind row ``parents[i]`` (the row before); the last two are the target's."""
        parents = list(range(-1, len(tokens) - 1)) if parents is None else list(parents)
        embedded = self.tensors.get("embed_tokens.weight", embedding)[list(tokens)]
        layer = "midlayer." if self.is_third else "layers.0."
        if self.is_third:
            normed = norm(states, self.tensors[f"{layer}hidden_norm.weight"])
            read = np.concatenate([norm(embedded, self.tensors[f"{layer}input_layernorm.weight"]), normed], axis=1)
            past = normed if self.norm_before_residual else states
        else:
            read = past = self._linear("fc", np.concatenate([embedded, states], axis=1))
        x = past + self._attention(layer, read, parents)
        inner = norm(x, self.tensors[f"{layer}post_attention_layernorm.weight"])
        gate = silu(self._linear(f"{layer}mlp.gate_proj", inner))
        x = x + self._linear(f"{layer}mlp.down_proj", gate * self._linear(f"{layer}mlp.up_proj", inner))
        last = norm(x, self.tensors["norm.weight"]) if self.is_third else x
        own = self.tensors.get("lm_head.weight")
        logits = np.full((len(tokens), self.n_vocab), -np.inf, np.float32)
        ids = list(range(self.n_vocab) if self.guessable is None else self.guessable)
        logits[:, ids] = last @ (unembedding if own is None else own).T
        return (last if self.norm_output else x).astype(np.float32), logits

    def _linear(self, name: str, x: Array) -> Array:
        done: Array = x @ self.tensors[f"{name}.weight"].T + self.tensors.get(f"{name}.bias", np.float32(0))
        return done

    def _attention(self, layer: str, read: Array, parents: Sequence[int]) -> Array:
        """Row by row over the path to it, as it is on the hub: RoPE over halves."""
        n, each, shared = len(read), self.width // self.heads, self.heads // self.kv_heads
        paths: list[list[int]] = []
        for row, parent in enumerate(parents):
            paths.append([*(paths[parent] if parent >= 0 else []), row])

        def split(part: str, heads: int) -> Array:
            return self._linear(f"{layer}self_attn.{part}_proj", read).reshape(n, heads, each)

        q, k, v = split("q", self.heads), split("k", self.kv_heads), split("v", self.kv_heads)
        mixed = np.zeros((n, self.heads, each), np.float32)
        for row, path in enumerate(paths):
            for head in range(self.heads):
                query = self._turned(q[row, head], len(path) - 1)
                scores = [query @ self._turned(k[at, head // shared], place) for place, at in enumerate(path)]
                shares = np.exp(np.array(scores) / np.sqrt(each))
                shares /= shares.sum()
                mixed[row, head] = sum(share * v[at, head // shared] for share, at in zip(shares, path, strict=True))
        return self._linear(f"{layer}self_attn.o_proj", mixed.reshape(n, -1))

    def _turned(self, x: Array, position: int) -> Array:
        half = len(x) // 2
        waves = [10000.0 ** (-2 * i / len(x)) for i in range(half)]
        angles = [position * (slowed(wave, dict(self.rope)) if self.rope else wave) for wave in waves]
        cos, sin = np.cos(angles), np.sin(angles)
        return np.concatenate([x[:half] * cos - x[half:] * sin, x[half:] * cos + x[:half] * sin])
