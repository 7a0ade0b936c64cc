"""What EAGLE heads have on the hub, under one set of names: those of GGUF files.

EAGLE-1 and -2 have one form (and one set of weights: they differ in how their trees grow), EAGLE-3 has three, by who
wrote it: the official one and SpecForge's (``midlayer.``), and speculators' (``layers.0.``, the layer's sizes in a
config of their own).

Two traps. ``d2t`` on the hub is what to add to a guess's number to get the target's id; in GGUF files it is that id.
And the numbers of the target's layers that EAGLE-3 reads are those of layers that put a state *out* where they stand in
``eagle_config`` (SGLang's, NVIDIA's, SpecForge's place), those of layers that take it *in* elsewhere (vLLM's place, and
ours); some files have the one kind in the other's place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from localspec.backends.base import NORMED
from localspec.backends.torch.checkpoint import Checkpoint
from localspec.backends.torch.hub_names import HEAD_ENDS, HEAD_LAYER, is_turned
from localspec.backends.torch.rope import paired, rope_base, rope_factors, turns
from localspec.backends.torch.sizes import Sizes
from localspec.errors import ModelLoadError, UsageError

FOR_THIS_TARGET = "Use the head that was trained for this target, or leave -md out."

#: Ways to write the start of a name → ours.
_STARTS = (
    (r"(?:module\.|draft_model\.|model\.)+", ""),
    (r"(?:midlayer|transformer)\.", "layers.0."),
    (r"fusion_fc\.", "fc."),
    (r"draft_id_to_target_id$", "d2t"),
)
#: The inverse of d2t, what RoPE works out, and what was borrowed from the target for the training.
_UNUSED = re.compile(r"t2d|.*rotary_emb\.inv_freq|verifier_.*|target_.*")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadShape(Sizes):
    """Sizes of a head. ``factors``: how much slower each pair of a head of attention turns than ``rope_base`` says,
    ``None``: no slower."""

    factors: Tensor | None = None

    @property
    def turns(self) -> Tensor:
        """The radians by which a position turns each pair."""
        return turns(self.each, self.rope_base, self.factors)


@dataclass(frozen=True, slots=True)
class EagleWeights:
    """A head as it was read. ``weights`` are in the types of the file, with RoPE over neighbouring pairs; ``reads`` are
    the target's layers, ``ids`` those of its tokens that it scores (``None``: all)."""

    shape: HeadShape
    weights: Mapping[str, Tensor]
    reads: tuple[int, ...]
    target_width: int
    n_ctx_train: int
    ids: NDArray[np.int64] | None = None
    norm_before_residual: bool = False
    norm_output: bool = False

    @property
    def is_third(self) -> bool:
        """EAGLE-3."""
        return self.reads != (NORMED,)


@dataclass(frozen=True, slots=True)
class TargetShape:
    """What a head has to fit."""

    name: str
    layers: int
    width: int
    n_vocab: int


def read_eagle(checkpoint: Checkpoint, target: TargetShape, name: str) -> EagleWeights:
    """Reads the head called ``name``.

    Raises:
        ModelLoadError: something is missing, or of a kind that is not known here.
        UsageError: it was made for another target.
    """
    config = {**checkpoint.config, **(checkpoint.config.get("transformer_layer_config") or {})}
    weights = _renamed(checkpoint.tensors, name)
    try:
        shape = _shape(config, weights)
        _check(weights, shape, name)
    except KeyError as error:
        raise ModelLoadError(f"{name} lacks {error.args[0]}", hint="Get all files of the repository.") from None
    offsets = weights.pop("d2t", None)
    for key, weight in weights.items():
        if is_turned(key.split(".")[-2]):
            weights[key] = paired(weight, shape.each)
    is_third = "blk.0.attn_norm_2.weight" in weights
    reads = layers_read(config, target.layers) if is_third else (NORMED,)
    ids = None if offsets is None else _ids(offsets, target, name)
    if config.get("fc_norm") or (config.get("norm_before_fc") and "enc.output_norm.weight" not in weights):
        raise ModelLoadError(f"{name} norms its layers in a way that is not known here", hint="Use another head.")
    found = EagleWeights(
        shape=shape,
        weights=weights,
        reads=reads,
        target_width=target.width,
        n_ctx_train=int(config.get("max_position_embeddings") or 2048),
        ids=ids,
        norm_before_residual=bool(config.get("norm_before_residual")),
        norm_output=bool(config.get("norm_output")),
    )
    check_fit(found, target, name)
    return found


def check_fit(head: EagleWeights, target: TargetShape, name: str) -> None:
    """Raises `UsageError`: the head called ``name`` was made for another target, or cannot borrow what it lacks."""
    _check_fit(head.weights, head.reads, target, name, third=head.is_third)
    _check_ends(head.weights, head.ids, target, name)


def usual_layers(n_layer: int) -> tuple[int, ...]:
    """Those whose inputs EAGLE-3 heads read, of ``n_layer``: near the target's start, in its middle, near its end."""
    return 2, n_layer // 2, n_layer - 3


def layers_read(config: Mapping[str, Any], n_layer: int) -> tuple[int, ...]:
    """The target's layers whose inputs an EAGLE-3 head reads, of ``n_layer``."""
    usual = usual_layers(n_layer)
    key = "eagle_aux_hidden_state_layer_ids"
    inner = (config.get("eagle_config") or {}).get(key)
    given = tuple(int(one) for one in inner or config.get(key) or usual)
    after = tuple(one + 1 for one in given)
    # In the wrong place where the other reading is the usual choice.
    names_outputs = given != usual if inner else after == usual
    return after if names_outputs else given


def _renamed(tensors: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    weights: dict[str, Tensor] = {}
    for theirs, weight in tensors.items():
        key = theirs
        for start, ours in _STARTS:
            key = re.sub(f"^{start}", ours, key)
        if key == "d2t":
            weights[key] = weight
        elif not _UNUSED.fullmatch(key):
            weights[_name(key, theirs, name)] = weight
    return weights


def _name(key: str, theirs: str, head: str) -> str:
    """Raises `ModelLoadError`: leaving a part out that was trained would make every guess a bad one."""
    part, _, what = key.rpartition(".")
    found = re.fullmatch(r"layers\.(\d+)\.(.*)", part)
    ours = HEAD_ENDS.get(part) if found is None else HEAD_LAYER.get(found[2])
    if ours is None or what not in ("weight", "bias"):
        raise ModelLoadError(f"{head} has a part that is not known here: {theirs}", hint="Use another head.")
    return f"{ours}.{what}" if found is None else f"blk.{found[1]}.{ours}.{what}"


def _shape(config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> HeadShape:
    """Raises `KeyError`."""
    width, heads = len(weights["fc.weight"]), int(config["num_attention_heads"])
    each = int(config.get("head_dim") or width // heads)
    return HeadShape(
        layers=1 + max(int(key.split(".")[1]) for key in weights if key.startswith("blk.")),
        width=width,
        heads=heads,
        kv_heads=int(config.get("num_key_value_heads") or heads),
        each=each,
        inner=len(weights["blk.0.ffn_up.weight"]),
        eps=float(config.get("rms_norm_eps") or 1e-6),
        rope_base=rope_base(config),
        factors=rope_factors(config, each),
    )


def _check(weights: Mapping[str, Tensor], shape: HeadShape, name: str) -> None:
    """Whether all parts are there, and of the sizes that the others say.

    Raises:
        KeyError: one is not there.
        ModelLoadError: one has another size.
    """
    third = "blk.0.attn_norm_2.weight" in weights
    width, q, kv = shape.width, shape.heads * shape.each, shape.kv_heads * shape.each
    sizes: dict[str, tuple[int, ...]] = {"output_norm.weight": (width,)} if third else {}
    for layer in range(shape.layers):
        reads = 2 * width if third else width
        sizes |= {
            f"blk.{layer}.{part}.weight": size
            for part, size in {
                **({"attn_norm": (width,)} if third or layer else {}),
                **({"attn_norm_2": (width,)} if third else {}),
                "attn_q": (q, reads),
                "attn_k": (kv, reads),
                "attn_v": (kv, reads),
                "attn_output": (width, q),
                "ffn_norm": (width,),
                "ffn_gate": (shape.inner, width),
                "ffn_up": (shape.inner, width),
                "ffn_down": (width, shape.inner),
            }.items()
        }
    for key, size in sizes.items():
        if (found := tuple(weights[key].shape)) != size:
            raise ModelLoadError(
                f"{name} is no EAGLE head: {key} is of the size {list(found)}, not {list(size)}",
                hint="Check its config.json.",
            )
    if not third and "blk.0.attn_norm.weight" in weights:
        raise ModelLoadError(f"{name} norms what its first layer reads, as no EAGLE-1 head does", hint="Use another.")
    if third and shape.layers > 1:
        raise ModelLoadError(f"{name} has {shape.layers} layers; known are EAGLE-3 heads of one", hint="Use another.")


def _check_fit(
    weights: Mapping[str, Tensor], reads: tuple[int, ...], target: TargetShape, name: str, *, third: bool
) -> None:
    """Raises `UsageError`: it was made for another target."""
    width, columns = weights["fc.weight"].shape
    read = columns / len(reads) if third else columns - width
    # An EAGLE-1 head goes on with states like the target's.
    if read != target.width or not (third or width == read):
        raise UsageError(
            f"{name} was made for a target of width {read:g}, {target.name} has {target.width}", hint=FOR_THIS_TARGET
        )
    if third and (min(reads) < 0 or max(reads) >= target.layers):
        raise UsageError(
            f"{name} reads layers {', '.join(map(str, reads))}, {target.name} has 0 to {target.layers - 1}",
            hint=FOR_THIS_TARGET,
        )


def _check_ends(weights: Mapping[str, Tensor], ids: NDArray[np.int64] | None, target: TargetShape, name: str) -> None:
    """Raises `UsageError`: it cannot borrow what it lacks, or knows other tokens."""
    width, n = len(weights["fc.weight"]), target.n_vocab
    for part, key, wanted in (
        ("embedding", "token_embd.weight", n),
        ("unembedding", "output.weight", n if ids is None else len(ids)),
    ):
        found = weights.get(key)
        if found is None and width != target.width:
            raise UsageError(
                f"{name} has no {part} of its own, and its width is {width}, that of {target.name} {target.width}",
                hint=FOR_THIS_TARGET,
            )
        if found is not None and len(found) < wanted:
            raise UsageError(
                f"the {part} of {name} has {len(found)} tokens, {target.name} has {n}", hint=FOR_THIS_TARGET
            )


def _ids(offsets: Tensor, target: TargetShape, name: str) -> NDArray[np.int64]:
    ids: NDArray[np.int64] = (offsets.to(torch.int64) + torch.arange(len(offsets))).numpy()
    if len(ids) == 0 or ids.min() < 0 or ids.max() >= target.n_vocab or len(np.unique(ids)) != len(ids):
        raise UsageError(
            f"{name} guesses ids up to {ids.max(initial=0)}, {target.name} has {target.n_vocab} tokens",
            hint=FOR_THIS_TARGET,
        )
    return ids
