"""Drafters that come in a file, or a folder, of their own (``-md``), by their ``--spec-type``."""

from __future__ import annotations

from collections.abc import Mapping

DRAFT_MODEL, EAGLE3 = "draft-simple", "draft-eagle3"
MEDUSA, HYDRA, PARD = "draft-medusa", "draft-hydra", "draft-pard"
#: What a head's file calls its architecture → its type. Any other file is a draft model.
HEADS: Mapping[str, str] = {"eagle3": EAGLE3}
#: What only the config.json of a folder from the hub says → its type.
BY_CONFIG: Mapping[str, str] = {"medusa_num_heads": MEDUSA, "hydra_num_heads": HYDRA, "pard_token": PARD}
#: Those that read what comes out of the target's final norm.
NORMED_TYPES = (MEDUSA, HYDRA)
FROM_FILE = (DRAFT_MODEL, *HEADS.values(), *BY_CONFIG.values())
