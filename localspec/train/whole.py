"""Files that appear whole or not at all, whenever the process dies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Where to write what is to be ``path`` when all of it is there."""
    part = path.with_name(f"{path.name}.part")
    yield part
    os.replace(part, path)
