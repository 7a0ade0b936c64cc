"""What was checked, so that it can be checked again: files, versions, machine."""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from localspec import __version__
from localspec.hub.shelf import parts
from localspec.tools.machine import processor
from localspec.types import EngineInfo


def certificate(info: EngineInfo, build: Mapping[str, str], options: Mapping[str, Any]) -> dict[str, Any]:
    """All but the results. ``build`` is what the backend knows of its library; ``options`` what was asked for."""
    return {
        "kind": "localspec verify",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "models": {"target": _file(info.target), "draft": None if info.draft is None else _file(info.draft)},
        "drafters": list(info.drafters),
        "versions": {
            "localspec": __version__,
            "numpy": version("numpy"),
            "python": sys.version.split()[0],
            **build,
        },
        "machine": {"system": platform.platform(), "processor": processor()},
        "loads": [{"role": load.role, "settings": dict(load.settings)} for load in info.loads],
        "options": dict(options),
    }


def _file(path: str) -> dict[str, Any]:
    """Name, size and SHA-256 of each file of a model; none of what is no file."""
    files = [file for file in parts(Path(path)) if file.is_file()]
    return {
        "path": path,
        "files": [{"name": file.name, "size": file.stat().st_size, "sha256": sha256(file)} for file in files],
    }


def sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
