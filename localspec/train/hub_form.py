"""Trained drafters in the form in which the hub keeps models: ``config.json`` and ``model.safetensors``."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from localspec.backends.torch.llama import Shape
from localspec.train.eagle3 import HeadShape

#: Names of a decoder layer: in a GGUF file, and on the hub.
_LAYER = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_HEAD_LAYER = {
    **_LAYER,
    "attn_norm": "input_layernorm",
    "attn_norm_2": "hidden_norm",
    "ffn_norm": "post_attention_layernorm",
}
_MODEL_LAYER = {**_LAYER, "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}


def write_hub_head(folder: Path, shape: HeadShape, weights: Mapping[str, Tensor], n_vocab: int) -> None:
    """The head as EAGLE-3's authors keep theirs: ``config.json`` and ``model.safetensors``."""
    named = {f"midlayer.{_HEAD_LAYER[name]}.weight": weights[name] for name in _HEAD_LAYER}
    _turn_halves(named, "midlayer.", shape.heads, shape.kv_heads)
    named |= {"fc.weight": weights["fc"], "norm.weight": weights["output_norm"], "lm_head.weight": weights["output"]}
    ids = torch.tensor(shape.ids)
    named["d2t"] = ids - torch.arange(len(ids))
    named["t2d"] = torch.zeros(n_vocab, dtype=torch.bool).index_fill(0, ids, True)
    config = _hub_config(shape, 1, n_vocab, "LlamaForCausalLMEagle3")
    # Here layers are named that put a state out, in a GGUF file those that take it in.
    given = [layer - 1 for layer in shape.layers]
    config |= {"draft_vocab_size": len(ids), "eagle_config": {"eagle_aux_hidden_state_layer_ids": given}}
    _write_hub(folder, config, named)


def write_hub_small(folder: Path, shape: Shape, weights: Mapping[str, Tensor]) -> None:
    """The draft model as the hub keeps llamas, without a tokenizer: that is the target's."""
    named = {"model.embed_tokens.weight": weights["token_embd"], "model.norm.weight": weights["output_norm"]}
    for layer in range(shape.layers):
        before = f"model.layers.{layer}."
        named |= {f"{before}{hub}.weight": weights[f"blk.{layer}.{name}"] for name, hub in _MODEL_LAYER.items()}
        _turn_halves(named, before, shape.heads, shape.kv_heads)
    _write_hub(folder, _hub_config(shape, shape.layers, shape.n_vocab, "LlamaForCausalLM"), named)


def _turn_halves(named: dict[str, Tensor], before: str, heads: int, kv_heads: int) -> None:
    """Rows of queries and keys that RoPE turns together are neighbours in a GGUF file; on the hub they are half a head
    apart."""
    for key, count in ((f"{before}self_attn.q_proj.weight", heads), (f"{before}self_attn.k_proj.weight", kv_heads)):
        weight = named[key]
        pairs = weight.view(count, weight.shape[0] // count // 2, 2, weight.shape[1])
        named[key] = pairs.transpose(1, 2).reshape(weight.shape)


def _hub_config(shape: HeadShape | Shape, layers: int, n_vocab: int, architecture: str) -> dict[str, Any]:
    return {
        "architectures": [architecture],
        "model_type": "llama",
        "hidden_size": shape.width,
        "intermediate_size": shape.inner,
        "num_hidden_layers": layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.each,
        "rms_norm_eps": shape.eps,
        "rope_theta": shape.rope_base,
        "hidden_act": "silu",
        "vocab_size": n_vocab,
        "tie_word_embeddings": architecture == "LlamaForCausalLM",
        "torch_dtype": "float32",
    }


def _write_hub(folder: Path, config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    part = folder / "model.safetensors.part"
    save_file({name: weight.detach().contiguous() for name, weight in weights.items()}, part)
    os.replace(part, folder / "model.safetensors")
