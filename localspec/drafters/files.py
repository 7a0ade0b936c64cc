"""Drafters that come in a file, or a folder, of their own (``-md``), by their ``--spec-type``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

DRAFT_MODEL, EAGLE3 = "draft-simple", "draft-eagle3"
MEDUSA, HYDRA, PARD = "draft-medusa", "draft-hydra", "draft-pard"
#: What a head's file calls its architecture → its type. Any other file is a draft model.
HEADS: Mapping[str, str] = {"eagle3": EAGLE3}
#: What only the config.json of a folder from the hub says → its type.
BY_CONFIG: Mapping[str, str] = {"medusa_num_heads": MEDUSA, "hydra_num_heads": HYDRA, "pard_token": PARD}
#: Those that read what comes out of the target's final norm.
NORMED_TYPES = (MEDUSA, HYDRA)
FROM_FILE = (DRAFT_MODEL, *HEADS.values(), *BY_CONFIG.values())


def folder_type(folder: Path) -> str | None:
    """What a folder from the hub is; ``None``: no drafter that is known, or no ``config.json`` that can be read."""
    try:
        config = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return next((kind for key, kind in BY_CONFIG.items() if isinstance(config, dict) and key in config), None)
