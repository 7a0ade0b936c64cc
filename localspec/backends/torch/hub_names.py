"""Names of weights on the hub → their names in GGUF files, of which all modules here speak."""

from __future__ import annotations

from collections.abc import Mapping

_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
#: Of a layer of an EAGLE head, and of what is around it.
HEAD_LAYER: Mapping[str, str] = {**_LAYER, "hidden_norm": "attn_norm_2"}
HEAD_ENDS: Mapping[str, str] = {
    "fc": "fc",
    "norm": "output_norm",
    "input_norm": "enc.output_norm",
    "lm_head": "output",
    "embed_tokens": "token_embd",
}
#: Norms that Qwen 3 has, and others have not.
NORMS_OF_HEADS: Mapping[str, str] = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
#: Of a model's layer, and of what is around it.
MODEL_LAYER: Mapping[str, str] = {**_LAYER, **NORMS_OF_HEADS}
MODEL_ENDS: Mapping[str, str] = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}


def is_turned(name: str) -> bool:
    """Whether RoPE turns what comes of this weight of a layer (as GGUF files name it), so that its rows lie otherwise
    on the hub (`localspec.backends.torch.rope.paired`)."""
    return name.startswith(("attn_q", "attn_k"))
