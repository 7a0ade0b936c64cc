"""Who takes part: ways to guess, and draft models that lie on this machine."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from localspec.drafters.files import DRAFT_MODEL, type_of
from localspec.errors import ModelError
from localspec.hub.header import Header, read_header
from localspec.hub.shelf import Entry, parts
from localspec.hub.vocabulary import Vocabulary
from localspec.options.rules import DEFAULT_TYPES
from localspec.tools.local import Setting
from localspec.types import SpecParams

#: Drafters without a model that are tried unless others are named: one of each kind.
TEXT = ("suffix", "ngram-simple", "ngram-mod", "lookahead")
#: Guesses side by side, where trees of a draft model are tried.
WIDTH = 2
#: Of the draft models found, so many are tried.
MOST_DRAFTS = 3
#: How many times smaller than its target a draft model is at best.
_SMALLER = 14


def text_ways(base: SpecParams, names: Sequence[str]) -> tuple[Setting, ...]:
    """Each drafter that needs no model, alone."""
    return tuple(_setting(base, (name,)) for name in names if name != DRAFT_MODEL)


def draft_ways(base: SpecParams, names: Sequence[str]) -> tuple[Setting, ...]:
    """A draft model alone, with the first of the others in one tree, and that as a tree proper unless ``base`` is one
    already."""
    first = next((name for name in names if name != DRAFT_MODEL), None)
    both = (DRAFT_MODEL,) if first is None else (first, DRAFT_MODEL)
    wide = [_setting(replace(base, width=WIDTH), both)] if base.width == 1 else []
    return tuple(dict.fromkeys((_setting(base, both), _setting(base, (DRAFT_MODEL,)), *wide)))


def _setting(base: SpecParams, types: tuple[str, ...]) -> Setting:
    name = ",".join(types) + (f", width {base.width}" if base.width > 1 else "")
    return Setting(name, replace(base, types=types))


def usual_types(*, draft: bool) -> tuple[str, ...]:
    """Who guesses where nobody says anything."""
    return (*DEFAULT_TYPES, DRAFT_MODEL) if draft else DEFAULT_TYPES


def is_usual(spec: SpecParams) -> bool:
    """Whether this is what is done anyway, with a draft model or without; trees never are."""
    return spec.width == 1 and spec.types in (usual_types(draft=False), usual_types(draft=True))


def draft_models(target: Path, entries: Iterable[Entry]) -> list[Path]:
    """Those of the models that may guess for the target: smaller, and of its vocabulary as far as headers say. The
    likeliest to pay come first."""
    wanted, size = Vocabulary.of(_header(target)), sum(part.stat().st_size for part in parts(target))
    found: dict[Path, float] = {}
    for entry in entries:
        path = entry.path
        if entry.fault is None and 0 < entry.size < size and not path.samefile(target):
            with suppress(ModelError):
                header = _header(path)
                # A head cannot be timed by itself.
                if type_of(header) == DRAFT_MODEL and Vocabulary.of(header).same_as(wanted):
                    found.setdefault(path.resolve(), abs(math.log(size / entry.size / _SMALLER)))
    return sorted(found, key=lambda path: found[path])


def _header(path: Path) -> Header:
    """Raises `ModelLoadError`."""
    return read_header(parts(path)[0])
