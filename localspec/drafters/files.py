"""Drafters that come in a file or a folder of their own (``-md``), or in the target's, by their ``--spec-type``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DRAFT_MODEL, EAGLE, EAGLE3, MTP = "draft-simple", "draft-eagle", "draft-eagle3", "draft-mtp"
DFLASH, DSPARK = "draft-dflash", "draft-dspark"
MEDUSA, HYDRA, PARD = "draft-medusa", "draft-hydra", "draft-pard"
#: What a head's file calls its architecture → its type. Any other file is a draft model.
HEADS: Mapping[str, str] = {"eagle3": EAGLE3, "dflash": DFLASH}
#: Architectures that read the cache of their target and have none of their own.
SHARING = frozenset({"gemma4-assistant"})
#: A block drafter with this tensor is a `DSPARK`: each guess follows the one before.
CHAINING = "markov_w1.weight"
#: A model that has layers for multi-token prediction, and not this tensor, has no others: it is a `MTP`.
FIRST = "blk.0.attn_norm.weight"
#: What only the config.json of a folder from the hub says → its type.
BY_CONFIG: Mapping[str, str] = {"medusa_num_heads": MEDUSA, "hydra_num_heads": HYDRA, "pard_token": PARD}
#: Those that read what comes out of the target's final norm.
NORMED_TYPES = (EAGLE, MEDUSA, HYDRA)
#: Those that need a file or a folder of their own; a `MTP` may have one.
FROM_FILE = (DRAFT_MODEL, EAGLE, *HEADS.values(), DSPARK, *BY_CONFIG.values())


def type_of(config: Mapping[str, Any]) -> str:
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
