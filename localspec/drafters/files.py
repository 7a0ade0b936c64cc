"""Drafters that come in a file of their own (``-md``) or in the target's, by their ``--spec-type``."""

from __future__ import annotations

from collections.abc import Mapping

DRAFT_MODEL, EAGLE3, MTP = "draft-simple", "draft-eagle3", "draft-mtp"
DFLASH, DSPARK = "draft-dflash", "draft-dspark"
#: What a head's file calls its architecture → its type. Any other file is a draft model.
HEADS: Mapping[str, str] = {"eagle3": EAGLE3, "dflash": DFLASH}
#: Architectures that read the cache of their target and have none of their own.
SHARING = frozenset({"gemma4-assistant"})
#: A block drafter with this tensor is a `DSPARK`: each guess follows the one before.
CHAINING = "markov_w1.weight"
#: A model that has layers for multi-token prediction, and not this tensor, has no others: it is a `MTP`.
FIRST = "blk.0.attn_norm.weight"
#: Those that need a file of their own; a `MTP` may have one.
FROM_FILE = (DRAFT_MODEL, EAGLE3, DFLASH, DSPARK)
