"""Drafters that come in a file or a folder of their own (``-md``), or in the target's, by their ``--spec-type``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from localspec.errors import UsageError
from localspec.hub.header import Header

DRAFT_MODEL, EAGLE, EAGLE3, MTP = "draft-simple", "draft-eagle", "draft-eagle3", "draft-mtp"
DFLASH, DSPARK = "draft-dflash", "draft-dspark"
MEDUSA, HYDRA, PARD = "draft-medusa", "draft-hydra", "draft-pard"
#: What a head's file calls its architecture → its type. Any other file is a draft model.
HEADS: Mapping[str, str] = {"eagle3": EAGLE3, "dflash": DFLASH}
#: Architectures that read the cache of their target and have none of their own.
SHARING = frozenset({"gemma4-assistant"})
#: What only the config.json of a folder from the hub says → its type.
BY_CONFIG: Mapping[str, str] = {"medusa_num_heads": MEDUSA, "hydra_num_heads": HYDRA, "pard_token": PARD}
#: Those that torch runs from a folder of the hub.
IN_TORCH = (EAGLE, EAGLE3, *BY_CONFIG.values())
#: Those that read what comes out of the target's final norm.
NORMED_TYPES = (EAGLE, MEDUSA, HYDRA)
#: Those that need a file or a folder of their own; a `MTP` may have one.
FROM_FILE = (DRAFT_MODEL, EAGLE, *HEADS.values(), DSPARK, *BY_CONFIG.values())


def type_of_file(header: Header) -> str:
    """The drafter that a GGUF file is, beside a target, by what it holds."""
    tensors = {tensor.name for tensor in header.tensors}
    found = HEADS.get(header.architecture or "")
    if found == DFLASH and "markov_w1.weight" in tensors:  # each guess follows the one before
        return DSPARK
    if found is not None:
        return found
    # Layers for multi-token prediction, and no others.
    alone = header.number("{arch}.nextn_predict_layers") and "blk.0.attn_norm.weight" not in tensors
    return MTP if alone else DRAFT_MODEL


def check_is_target(architecture: str | None, name: str) -> None:
    """Raises `UsageError`: the file called ``name`` is a head, which guesses for a target, and none itself."""
    kind = HEADS.get(architecture or "")
    if kind is not None:
        raise UsageError(
            f"{name} is a head ({kind}): it guesses for a target, and is none",
            hint="Give its target by -m, and this file by -md.",
        )


def type_of_folder(config: Mapping[str, Any]) -> str:
    """What a folder from the hub is by its ``config.json``; a draft model, if nothing else."""
    found = next((kind for key, kind in BY_CONFIG.items() if key in config), None)
    return found or _eagle(config) or DRAFT_MODEL


def _eagle(config: Mapping[str, Any]) -> str | None:
    names = [config.get("speculators_model_type"), *(config.get("architectures") or ())]
    named = " ".join(str(name) for name in names).casefold()
    if "eagle3" in named or "draft_vocab_size" in config:
        return EAGLE3
    # The first heads call themselves by their target's architecture, but have one layer.
    return EAGLE if "eagle" in named or config.get("num_hidden_layers") == 1 else None
