"""Tiny random decoders of the architectures that torch runs, as GGUF files of any type of weights."""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import gguf
import llama_cpp
import numpy as np
from numpy.typing import NDArray

from tests.support.gguf_files import TokenizerKeys
from tests.support.random_weights import matrix as random_matrix
from tests.support.random_weights import scales as random_scales
from tests.support.real_models import model_cache

Array = NDArray[np.float32]
Kind = gguf.GGMLQuantizationType
#: Types for which llama.cpp first makes tables, for up to ten seconds: what came of it is kept.
SLOW = frozenset({Kind.IQ1_S, Kind.IQ1_M, Kind.IQ2_XXS, Kind.IQ2_XS, Kind.IQ2_S, Kind.IQ3_XXS, Kind.IQ3_S})


@dataclass(frozen=True, kw_only=True)
class TinyDecoder:
    """A random model.

    Args:
        each: width of a head; not given: what is usual.
        experts: of a layer, two for each token; 0: none.
        tied: one table of tokens for both ends.
        biased: queries, keys and values have biases.
        keys: more metadata, below the architecture's name.
        factors: how much slower each pair of a head turns, by the names of tensors.
    """

    n_vocab: int
    architecture: str = "llama"
    layers: int = 2
    width: int = 64
    heads: int = 4
    kv_heads: int = 2
    each: int = 0
    experts: int = 0
    tied: bool = False
    biased: bool = False
    n_ctx: int = 2048
    seed: int = 0
    keys: Mapping[str, Any] = field(default_factory=dict)
    factors: Mapping[str, Array] = field(default_factory=dict)

    @property
    def head(self) -> int:
        return self.each or self.width // self.heads

    @cached_property
    def tensors(self) -> dict[str, Array]:
        rng = np.random.default_rng(self.seed)
        matrix, scales = partial(random_matrix, rng), partial(random_scales, rng)
        # Where embeddings grow with the width, they begin small.
        size = 1 if self.architecture == "gemma3" else np.sqrt(self.width)
        tensors = {
            "token_embd.weight": matrix(self.n_vocab, self.width) * np.float32(size),
            "output_norm.weight": scales(self.width),
            **{f"{name}.weight": factors for name, factors in self.factors.items()},
        }
        if not self.tied:
            tensors["output.weight"] = matrix(self.n_vocab, self.width) * np.float32(4)
        for layer in range(self.layers):
            block = {**self._attention(matrix, scales), **self._inner(matrix), "ffn_norm.weight": scales(self.width)}
            if self.architecture == "gemma3":
                block |= {f"post_{part}_norm.weight": scales(self.width) for part in ("attention", "ffw")}
            if self.biased:
                for part, heads in (("q", self.heads), ("k", self.kv_heads), ("v", self.kv_heads)):
                    block[f"attn_{part}.bias"] = scales(heads * self.head) - 1
            tensors |= {f"blk.{layer}.{name}": weights for name, weights in block.items()}
        return tensors

    def _attention(self, matrix: Any, scales: Any) -> dict[str, Array]:
        rows = [heads * self.head for heads in (self.heads, self.kv_heads, self.kv_heads)]
        block = {"attn_norm.weight": scales(self.width), "attn_output.weight": matrix(self.width, rows[0])}
        if self.architecture == "phi3":
            return {**block, "attn_qkv.weight": matrix(sum(rows), self.width)}
        if self.architecture in ("qwen3", "qwen3moe", "gemma3"):
            block |= {f"attn_{part}_norm.weight": scales(self.head) for part in "qk"}
        return block | {f"attn_{part}.weight": matrix(n, self.width) for part, n in zip("qkv", rows, strict=True)}

    def _inner(self, matrix: Any) -> dict[str, Array]:
        width, inner = self.width, 2 * self.width
        if self.architecture == "phi3":
            return {"ffn_up.weight": matrix(2 * inner, width), "ffn_down.weight": matrix(width, inner)}
        if not self.experts:
            shapes = {"gate": (inner, width), "up": (inner, width), "down": (width, inner)}
            return {f"ffn_{part}.weight": matrix(*shape) for part, shape in shapes.items()}

        def each_of(rows: int, columns: int) -> Array:
            return np.stack([matrix(rows, columns) for _ in range(self.experts)])

        return {
            # Steep, so that no two experts are about as likely.
            "ffn_gate_inp.weight": matrix(self.experts, width) * np.float32(3),
            "ffn_gate_exps.weight": each_of(inner, width),
            "ffn_up_exps.weight": each_of(inner, width),
            "ffn_down_exps.weight": each_of(width, inner),
        }

    def write(self, path: Path, tokenizer: TokenizerKeys, kinds: Mapping[str, Any] | None = None) -> Path:
        """Writes the file. ``kinds``: the start of a tensor's name → its type, of matrices; ``""`` is that of all
        others. Those whose rows do not fit stay in float32."""
        writer = gguf.GGUFWriter(path, self.architecture)
        writer.add_name("tiny random decoder")  # by some names llama.cpp expects tokens
        for name, value in self._keys().items():
            if isinstance(value, list):
                writer.add_array(f"{self.architecture}.{name}", value)
            else:
                add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}[type(value)]
                add(f"{self.architecture}.{name}", value)
        for name, (value, kind, element) in tokenizer.keys.items():
            writer.add_key_value(name, value, kind, sub_type=element)
        for name, weights in self.tensors.items():
            kind = _kind(name, weights, kinds or {})
            make = kept if kind in SLOW else quantised
            writer.add_tensor(name, make(weights, kind), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    def _keys(self) -> dict[str, Any]:
        keys: dict[str, Any] = {
            "context_length": self.n_ctx,
            "embedding_length": self.width,
            "block_count": self.layers,
            "feed_forward_length": 2 * self.width,
            "attention.head_count": self.heads,
            "attention.head_count_kv": self.kv_heads,
            "attention.key_length": self.head,
            "attention.value_length": self.head,
            "attention.layer_norm_rms_epsilon": 1e-5,
            "rope.dimension_count": self.head,
        }
        if self.experts:
            keys |= {"expert_count": self.experts, "expert_used_count": 2}
            keys["expert_feed_forward_length"] = 2 * self.width
        return keys | dict(self.keys)


def _kind(name: str, weights: Array, kinds: Mapping[str, Any]) -> Any:
    found = next((kind for start, kind in kinds.items() if start and name.startswith(start)), kinds.get("", Kind.F32))
    fits = weights.ndim > 1 and weights.shape[-1] % gguf.GGML_QUANT_SIZES[found][0] == 0
    # A router is never quantised.
    return found if fits and "ffn_gate_inp" not in name else Kind.F32


def kept(weights: Array, kind: Any) -> NDArray[Any]:
    """`quantised`, once a machine and build of llama.cpp."""
    digest = hashlib.sha256(f"{llama_cpp.__version__} {kind.name} {weights.shape}".encode())
    digest.update(np.ascontiguousarray(weights, np.float32).tobytes())
    path = model_cache() / f"quantised-{digest.hexdigest()[:32]}.npy"
    if path.exists():
        found: NDArray[Any] = np.load(path)
        return found
    made = quantised(weights, kind)
    # A name of its own until it is whole: another process may be at the same.
    partial = path.with_name(f"{path.stem}.{os.getpid()}.part.npy")
    np.save(partial, made)
    partial.replace(path)
    return made


def quantised(weights: Array, kind: Any) -> NDArray[Any]:
    """As llama.cpp itself quantises."""
    if kind == Kind.F32:
        return np.ascontiguousarray(weights, np.float32)
    if kind in (Kind.F16, Kind.BF16):
        halved: NDArray[Any] = gguf.quants.quantize(weights, kind)
        return halved
    block, size = gguf.GGML_QUANT_SIZES[kind]
    rows, columns = weights.size // weights.shape[-1], weights.shape[-1]
    source, found = np.ascontiguousarray(weights, np.float32), np.zeros(weights.size // block * size, np.uint8)
    equal = np.ones(columns, np.float32)  # all columns matter alike; some types want to be told
    call = _library().ggml_quantize_chunk
    call.restype = ctypes.c_size_t
    call.argtypes = [ctypes.c_int, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 3, ctypes.c_void_p]
    written = call(int(kind), source.ctypes.data, found.ctypes.data, 0, rows, columns, equal.ctypes.data)
    assert written == found.size
    return found.reshape(*weights.shape[:-1], -1)


def _library() -> ctypes.CDLL:
    folder = Path(llama_cpp.__file__).parent / "lib"
    return ctypes.CDLL(str(next(folder.glob("*ggml-base.*"))))
