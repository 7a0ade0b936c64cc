"""Decoders of the llama build from folders as they lie on the Hugging Face hub."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from localspec.backends.torch.checkpoint import Checkpoint
from localspec.backends.torch.hub_names import MODEL_ENDS, MODEL_LAYER, NORMS_OF_HEADS, is_turned
from localspec.backends.torch.kernels.dispatch import choose
from localspec.backends.torch.llama import TorchLlama
from localspec.backends.torch.place import Place
from localspec.backends.torch.places import Places
from localspec.backends.torch.rope import paired as paired_rows
from localspec.backends.torch.rope import rope_base, rope_factors
from localspec.backends.torch.sizes import Shape
from localspec.errors import ModelLoadError, PairingError
from localspec.vocab import Pairing, Vocab

_KINDS = ("llama", "qwen2", "qwen3")


class HubLlama(TorchLlama):
    """The model of a checkpoint; models like it (Qwen 2 and 3) too.

    Raises:
        ModelLoadError: another kind of model, or something is missing.
    """

    def __init__(self, checkpoint: Checkpoint, place: Place | None = None) -> None:
        config, place = checkpoint.config, place or Place()
        kind = config.get("model_type")
        if kind not in _KINDS:
            raise ModelLoadError(
                f"the model is of the kind {kind}; torch reads {', '.join(_KINDS)}", hint="Use a GGUF file of it."
            )
        self.n_ctx_train = int(config.get("max_position_embeddings", 2048))
        try:
            shape = _shape(config)
            weights = {name: place.put(one) for name, one in _renamed(checkpoint.tensors, shape).items()}
            _check(weights, shape)
            if (factors := rope_factors(config, shape.each)) is not None:
                weights["rope_freqs.weight"] = factors
            super().__init__(shape, weights, choose(place.device).ops, Places.whole(place))
        except KeyError as error:
            raise ModelLoadError(
                f"the checkpoint lacks {error.args[0]}", hint="Get all files of the repository."
            ) from None


def _shape(config: Mapping[str, Any]) -> Shape:
    width, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
    return Shape(
        layers=int(config["num_hidden_layers"]),
        width=width,
        heads=heads,
        kv_heads=int(config.get("num_key_value_heads") or heads),
        each=int(config.get("head_dim") or width // heads),
        inner=int(config["intermediate_size"]),
        n_vocab=int(config["vocab_size"]),
        eps=float(config["rms_norm_eps"]),
        rope_base=rope_base(config),
    )


def _renamed(tensors: Mapping[str, Tensor], shape: Shape) -> dict[str, Tensor]:
    """The weights by the names of GGUF files."""
    weights = {
        f"{ours}.weight": tensors[f"{theirs}.weight"]
        for theirs, ours in MODEL_ENDS.items()
        if f"{theirs}.weight" in tensors
    }
    for layer in range(shape.layers):
        for theirs, ours in MODEL_LAYER.items():
            for what in ("weight", "bias"):
                found = tensors.get(f"model.layers.{layer}.{theirs}.{what}")
                if found is not None:
                    weights[f"blk.{layer}.{ours}.{what}"] = paired_rows(found, shape.each) if is_turned(ours) else found
    return weights


def _check(weights: Mapping[str, Tensor], shape: Shape) -> None:
    needed = {"token_embd.weight", "output_norm.weight"}
    for layer in range(shape.layers):
        needed |= {f"blk.{layer}.{ours}.weight" for ours in MODEL_LAYER.values() if ours not in NORMS_OF_HEADS.values()}
    if missing := sorted(needed - weights.keys()):
        raise KeyError(missing[0])


def paired(folder: Path, n_vocab: int, target: Vocab) -> Pairing:
    """Compares the tokenizer of a folder, whose model has ``n_vocab`` rows, with the target's, as
    `localspec.vocab.pair` does two models.

    Raises:
        ModelLoadError: the folder has no tokenizer that can be read.
        PairingError: it is not the target's.
    """
    texts = _texts(folder)
    common = min(n_vocab, target.n_tokens, max(texts, default=-1) + 1)
    differing = frozenset(token for token in range(common) if target.text(token) != texts.get(token))
    if not differing <= target.control_tokens or not common:
        raise PairingError(
            f"{folder.name} has another vocabulary than the target ({len(texts)} tokens, the target's"
            f" {target.n_tokens})",
            hint="Use a draft model of the same family as the target.",
        )
    return Pairing(common, differing, min(target.end_tokens, default=0))


def _texts(folder: Path) -> dict[int, str]:
    try:
        found = json.loads((folder / "tokenizer.json").read_bytes())
        texts = {int(token): str(text) for text, token in found["model"]["vocab"].items()}
        return texts | {int(one["id"]): str(one["content"]) for one in found.get("added_tokens", ())}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise ModelLoadError(
            f"{folder.name} has no tokenizer.json that can be read", hint="Get all files of the repository."
        ) from None
