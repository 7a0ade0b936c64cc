"""Which library and which processor this is: what was found out about one says nothing about another. Loads neither."""

from __future__ import annotations

import hashlib
import os
from importlib.util import find_spec
from pathlib import Path


def library_folder() -> Path | None:
    """Where llama.cpp's shared libraries are; ``None`` if it is not installed."""
    if named := os.environ.get("LLAMA_CPP_LIB_PATH"):  # as the binding looks for them
        return Path(named)
    package = find_spec("llama_cpp")
    return None if package is None or package.origin is None else Path(package.origin).parent / "lib"


def machine_fingerprint(libraries: Path) -> str:
    """Changes with the libraries in a folder, its CPU parts among them, and with the machine."""
    digest = hashlib.sha256()
    for file in sorted(libraries.glob("*.so*")):
        stat = file.stat()
        digest.update(f"{file}|{stat.st_size}|{stat.st_mtime_ns}\n".encode())
    digest.update(_cpu().encode())
    return digest.hexdigest()[:32]


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        import platform

        return platform.processor()
    return "|".join(sorted({line for line in lines if line.startswith(("model name", "flags"))}))
