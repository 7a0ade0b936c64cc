"""Trained drafters in the form in which the hub keeps models: ``config.json`` and ``model.safetensors``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from localspec.backends.torch.eagle_weights import EagleWeights
from localspec.backends.torch.hub_names import HEAD_ENDS, HEAD_LAYER, MODEL_ENDS, MODEL_LAYER, is_turned
from localspec.backends.torch.rope import halved
from localspec.backends.torch.sizes import Shape, Sizes
from localspec.train.whole import whole


def write_hub_head(folder: Path, head: EagleWeights, n_vocab: int) -> None:
    """The head, which scores tokens of its own choice, as EAGLE-3's authors keep theirs."""
    assert head.ids is not None
    named = _renamed(head.weights, {"blk.0.": "midlayer."}, HEAD_LAYER, HEAD_ENDS, head.shape.each)
    ids = torch.from_numpy(head.ids)
    named["d2t"] = ids - torch.arange(len(ids))
    named["t2d"] = torch.zeros(n_vocab, dtype=torch.bool).index_fill(0, ids, True)
    config = _hub_config(head.shape, n_vocab, "LlamaForCausalLMEagle3")
    # Here layers are named that put a state out, in a GGUF file those that take it in.
    given = [layer - 1 for layer in head.reads]
    config |= {"draft_vocab_size": len(ids), "eagle_config": {"eagle_aux_hidden_state_layer_ids": given}}
    _write_hub(folder, config, named)


def write_hub_small(folder: Path, shape: Shape, weights: Mapping[str, Tensor]) -> None:
    """The draft model as the hub keeps llamas, without a tokenizer: that is the target's."""
    layers = {f"blk.{layer}.": f"model.layers.{layer}." for layer in range(shape.layers)}
    named = _renamed(
        {f"{name}.weight": one for name, one in weights.items()}, layers, MODEL_LAYER, MODEL_ENDS, shape.each
    )
    _write_hub(folder, _hub_config(shape, shape.n_vocab, "LlamaForCausalLM"), named)


def _renamed(
    weights: Mapping[str, Tensor],
    layers: Mapping[str, str],
    inside: Mapping[str, str],
    outside: Mapping[str, str],
    each: int,
) -> dict[str, Tensor]:
    """Weights by their names on the hub, from those of GGUF files. ``layers``: how names of a layer begin, here and
    there."""
    inner, outer = ({ours: theirs for theirs, ours in names.items()} for names in (inside, outside))
    named = {}
    for key, weight in weights.items():
        name = key.removesuffix(".weight")
        start = next((start for start in layers if name.startswith(start)), None)
        if start is None:
            named[f"{outer[name]}.weight"] = weight
        else:
            name = name.removeprefix(start)
            named[f"{layers[start]}{inner[name]}.weight"] = halved(weight, each) if is_turned(name) else weight
    return named


def _hub_config(sizes: Sizes, n_vocab: int, architecture: str) -> dict[str, Any]:
    return {
        "architectures": [architecture],
        "model_type": "llama",
        "hidden_size": sizes.width,
        "intermediate_size": sizes.inner,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "head_dim": sizes.each,
        "rms_norm_eps": sizes.eps,
        "rope_theta": sizes.rope_base,
        "hidden_act": "silu",
        "vocab_size": n_vocab,
        "tie_word_embeddings": architecture == "LlamaForCausalLM",
        "torch_dtype": "float32",
    }


def _write_hub(folder: Path, config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    with whole(folder / "model.safetensors") as part:
        save_file({name: weight.detach().contiguous() for name, weight in weights.items()}, part)
