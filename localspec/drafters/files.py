"""Drafters that come in a file of their own (``-md``) or in the target's, by their ``--spec-type``."""

from __future__ import annotations

from collections.abc import Mapping

from localspec.hub.header import Header

DRAFT_MODEL, EAGLE3, MTP = "draft-simple", "draft-eagle3", "draft-mtp"
DFLASH, DSPARK = "draft-dflash", "draft-dspark"
#: What a head's file calls its architecture → its type. Any other file is a draft model.
HEADS: Mapping[str, str] = {"eagle3": EAGLE3, "dflash": DFLASH}
#: Architectures that read the cache of their target and have none of their own.
SHARING = frozenset({"gemma4-assistant"})
#: Those that need a file of their own; a `MTP` may have one.
FROM_FILE = (DRAFT_MODEL, EAGLE3, DFLASH, DSPARK)


def type_of(header: Header) -> str:
    """The drafter that a file is, beside a target, by what it holds."""
    tensors = {tensor.name for tensor in header.tensors}
    found = HEADS.get(header.architecture or "")
    if found == DFLASH and "markov_w1.weight" in tensors:  # each guess follows the one before
        return DSPARK
    if found is not None:
        return found
    # Layers for multi-token prediction, and no others.
    alone = header.number("{arch}.nextn_predict_layers") and "blk.0.attn_norm.weight" not in tensors
    return MTP if alone else DRAFT_MODEL
