"""What can be told of drafters, and the names of those that need no model: all that front ends know of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

#: Those that guess from text alone, by their ``--spec-type`` (`localspec.drafters.registry` makes them).
TEXT_TYPES = ("suffix", "ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache", "lookahead")
#: Of Medusa's trees.
Shape = Literal["dynamic", "static"]


@dataclass(frozen=True, slots=True)
class NgramOptions:
    """``size_n`` tokens must match, continuations run up to ``size_m`` tokens, a match must occur ``min_hits``
    times; ``places`` most recent matches are looked at."""

    size_n: int = 3
    size_m: int = 48
    min_hits: int = 1
    places: int = 8


@dataclass(frozen=True, slots=True)
class ModOptions:
    """``n_match`` tokens are looked up; a guess has up to ``n_max`` tokens, and is made only where the pool knows
    ``n_min``."""

    n_match: int = 8
    n_min: int = 0
    n_max: int = 64


@dataclass(frozen=True, slots=True)
class TextOptions:
    """Settings of the drafters that need no model. ``corpus`` (a text file or a folder of them) and llama.cpp's lookup
    caches are read when the drafters are loaded, and shared by all conversations."""

    ngram_simple: NgramOptions = field(default_factory=NgramOptions)
    ngram_map_k: NgramOptions = field(default_factory=NgramOptions)
    ngram_map_k4v: NgramOptions = field(default_factory=NgramOptions)
    ngram_mod: ModOptions = field(default_factory=ModOptions)
    lookup_static: Path | None = None
    lookup_dynamic: Path | None = None
    corpus: Path | None = None


@dataclass(frozen=True, slots=True)
class Scored:
    """Which tokens a head with a full vocabulary is to score: the ``n`` most frequent by the file ``path``
    (`localspec.backends.torch.token_map`)."""

    n: int | None = None
    path: Path | None = None

    @property
    def flag(self) -> str:
        """How it is asked for; "" if it is not."""
        return "--spec-head-vocab" if self.n is not None else "--spec-token-map" if self.path is not None else ""
