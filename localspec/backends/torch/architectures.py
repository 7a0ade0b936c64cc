"""The architectures of GGUF files that torch runs: how each differs from llama, and what its files say of that."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from localspec.backends.options import RopeOptions
from localspec.backends.torch.rope import RopeScaling
from localspec.backends.torch.sizes import Build, Shape, Sizes
from localspec.errors import ModelLoadError
from localspec.hub.arrays import elements
from localspec.hub.header import Array, Header

#: What to do about models that torch does not run.
LLAMACPP = "Use --backend llamacpp."
#: Tensors that a pass reads: around the layers, in one, and those of them that may have a bias.
_ENDS = ("token_embd", "output_norm", "output", "rope_freqs", "rope_factors_long", "rope_factors_short")
_INSIDE = ("attn_q", "attn_k", "attn_v", "attn_qkv", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
_NORMS = ("attn_norm", "attn_q_norm", "attn_k_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
_EXPERTS = ("ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")
_READ = frozenset(
    [f"{name}.weight" for name in (*_ENDS, *(f"blk.{one}" for one in (*_INSIDE, *_NORMS, *_EXPERTS)))]
    + [f"blk.{name}.bias" for name in _INSIDE]
)
#: Layers of the largest Gemma 3, whose scores of attention are scaled by another width.
_LARGEST_GEMMA = 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """``every``: where files have a sliding window, one layer in so many sees all; 0: the window counts for none."""

    halves: bool = True
    gelu: bool = False
    embeddings_grow: bool = False
    every: int = 0
    attention_scale: Callable[[Sizes], float | None] = lambda sizes: None


def _of_gemma(sizes: Sizes) -> float | None:
    return float((sizes.width / sizes.heads) ** -0.5) if sizes.layers == _LARGEST_GEMMA else None


ARCHITECTURES: Mapping[str, Architecture] = {
    "llama": Architecture(halves=False),
    "qwen2": Architecture(),
    "qwen3": Architecture(),
    "qwen3moe": Architecture(),
    "gemma3": Architecture(gelu=True, embeddings_grow=True, every=6, attention_scale=_of_gemma),
    # Its files name a window that llama.cpp leaves out, too: they do not say in which layers it is.
    "phi3": Architecture(),
}


def read_shape(header: Header, sizes: Sizes, n_vocab: int, rope: RopeOptions) -> Shape:
    """What a file says of its model; ``rope`` is what the user says of its positions.

    Raises:
        ModelLoadError: it does not say enough.
    """
    plain, keys = ARCHITECTURES[header.architecture or ""], _Keys(header)
    window = int(keys.get("attention.sliding_window", 0)) if plain.every else 0
    if plain.every and not window:  # another graph in llama.cpp, with another end
        raise ModelLoadError(f"{header.path.name} has no sliding window, as others of its kind have", hint=LLAMACPP)
    build = Build(
        halves=plain.halves,
        turned=int(keys.get("rope.dimension_count", sizes.each)) % sizes.each,
        gelu=plain.gelu,
        embedding_scale=sizes.width**0.5 if plain.embeddings_grow else 1.0,
        attention_scale=plain.attention_scale(sizes),
        window=window,
        windowed=_windowed(keys, plain.every, sizes.layers) if window else frozenset(),
        window_base=float(keys.get("rope.freq_base_swa", 10000.0)),
        scaling=_scaling(keys, rope),
        experts=int(keys.get("expert_used_count", 0)),
        all_experts=int(keys.get("expert_count", 0)),
        expert_inner=int(keys.get("expert_feed_forward_length", sizes.inner)) if keys.get("expert_count", 0) else 0,
    )
    base = sizes.rope_base if rope.freq_base is None else rope.freq_base
    return Shape.like(sizes, rope_base=base, n_vocab=n_vocab, build=build)


class _Keys:
    """The metadata of one architecture."""

    def __init__(self, header: Header) -> None:
        self.header = header

    def get(self, key: str, usual: Any) -> Any:
        return self.header.metadata.get(f"{self.header.architecture}.{key}", usual)


def _windowed(keys: _Keys, every: int, layers: int) -> frozenset[int]:
    """Layers with a window. A file may list them."""
    listed = keys.get("attention.sliding_window_pattern", every)
    if isinstance(listed, Array):
        return frozenset(layer for layer, has in enumerate(elements(keys.header, listed).values) if has)
    return frozenset(layer for layer in range(layers) if not listed or layer % listed < listed - 1)


def _scaling(keys: _Keys, rope: RopeOptions) -> RopeScaling:
    """The user's word counts before the file's."""
    kind = rope.scaling or keys.get("rope.scaling.type", "linear")
    factor = float(keys.get("rope.scaling.factor", keys.get("rope.scale_linear", 0.0)))
    scale = (1 / factor if factor else 1.0) if rope.freq_scale is None else rope.freq_scale
    yarn = float(kind == "yarn") if rope.yarn_ext_factor is None else rope.yarn_ext_factor
    size = float(keys.get("rope.scaling.attn_factor", 1.0))
    if rope.yarn_attn_factor is not None and not yarn:  # as in llama.cpp, YaRN has its own
        size *= rope.yarn_attn_factor
    return RopeScaling(
        scale=1.0 if kind == "none" else scale,
        yarn=yarn,
        size=size,
        original=(rope.yarn_orig_ctx or original_length(keys.header)) if yarn else 0,
        fast=32.0 if rope.yarn_beta_fast is None else rope.yarn_beta_fast,
        slow=1.0 if rope.yarn_beta_slow is None else rope.yarn_beta_slow,
    )


def original_length(header: Header) -> int:
    """Tokens of the texts that a model first learnt.

    Raises:
        ModelLoadError: the file does not say.
    """
    length = header.number("{arch}.rope.scaling.original_context_length") or header.number("{arch}.context_length")
    if length is None:
        raise ModelLoadError(f"{header.path.name} does not say its context_length", hint=LLAMACPP)
    return length


def check_tensors(names: Iterable[str], layers: int, file: str) -> None:
    """Raises `ModelLoadError`: tensors are missing, or there are some that no pass would read, so that the text would
    be another."""
    found = {*names}
    needed = {"token_embd.weight", "output_norm.weight"}
    for layer in range(layers):
        experts = f"blk.{layer}.ffn_gate_inp.weight" in found
        norms = {f"blk.{layer}.attn_{part}_norm.weight" for part in "qk"}
        needed |= norms if norms & found else set()
        whole = f"blk.{layer}.attn_qkv.weight" in found
        parts = ("attn_norm", "attn_output", "ffn_norm", *(("attn_qkv",) if whole else ("attn_q", "attn_k", "attn_v")))
        needed |= {
            f"blk.{layer}.{name}.weight" for name in (*parts, *(_EXPERTS if experts else ("ffn_up", "ffn_down")))
        }
    if missing := sorted(needed - found):
        raise ModelLoadError(f"{file} lacks {missing[0]}", hint="Download it again, or use another file of the model.")
    if strange := sorted(name for name in found if re.sub(r"^blk\.\d+\.", "blk.", name) not in _READ):
        raise ModelLoadError(f"{file} has tensors that torch does not know: {', '.join(strange[:3])}", hint=LLAMACPP)
