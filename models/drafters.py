"""Drafters that are published for public models, as ``drafters.toml`` beside this module lists them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Drafter:
    """One entry; what its source does not tell is ``None``.

    Attributes:
        repo, revision, file: where it is on the hub; without ``file`` any of the repository.
        type: its ``--spec-type``.
        targets: repositories of the models it was made for; none: any of its vocabulary.
        format: ``gguf`` or ``safetensors``.
        source: what names it.
        checked: somebody of this project loaded it at that revision.
        own: the layers that guess are in the target's own file.
        architecture: of its targets, as GGUF files name it.
        tokenizer, tokens: of its vocabulary, as GGUF files name and count it.
        millions: of parameters.
    """

    repo: str
    type: str
    format: str
    source: str
    targets: tuple[str, ...] = ()
    revision: str = "main"
    checked: bool = False
    file: str | None = None
    own: bool = False
    architecture: str | None = None
    tokenizer: str | None = None
    tokens: int | None = None
    millions: int | None = None
    licence: str | None = None
    gated: bool | None = None

    @classmethod
    def read(cls, entry: dict[str, Any], group: dict[str, Any]) -> Drafter:
        """Raises `ValueError` for a key that is none."""
        merged = {**{key: value for key, value in group.items() if key != "drafters"}, **entry}
        if unknown := merged.keys() - {field.name for field in fields(cls)}:
            raise ValueError(f"{entry.get('repo')}: no such keys: {', '.join(sorted(unknown))}")
        return cls(**{**merged, "targets": tuple(merged.get("targets", ()))})


@cache
def known() -> tuple[Drafter, ...]:
    """All of them, in the order of the file."""
    table = tomllib.loads(Path(__file__).with_name("drafters.toml").read_text(encoding="utf-8"))
    return tuple(Drafter.read(entry, group) for group in table["group"] for entry in group["drafters"])
