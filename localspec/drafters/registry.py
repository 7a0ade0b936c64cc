"""The drafters that need no model, by their ``--spec-type``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from localspec.drafters.base import Drafter
from localspec.drafters.lookahead import NAME as LOOKAHEAD
from localspec.drafters.lookahead import Lookahead
from localspec.drafters.ngram import NAME as SIMPLE
from localspec.drafters.ngram import NgramOptions, NgramSimple
from localspec.drafters.ngram_map import MAP_K, MAP_K4V, NgramMapK, NgramMapK4V
from localspec.drafters.suffix import NAME as SUFFIX
from localspec.drafters.suffix import Earlier, Suffix


@dataclass(frozen=True, slots=True)
class TextOptions:
    """Settings of the drafters that need no model."""

    ngram_simple: NgramOptions = field(default_factory=NgramOptions)
    ngram_map_k: NgramOptions = field(default_factory=NgramOptions)
    ngram_map_k4v: NgramOptions = field(default_factory=NgramOptions)


Maker = Callable[[TextOptions], list[Drafter]]

MAKERS: Mapping[str, Maker] = {
    SUFFIX: lambda options: [Suffix(), Earlier()],
    SIMPLE: lambda options: [NgramSimple(options.ngram_simple)],
    MAP_K: lambda options: [NgramMapK(options.ngram_map_k)],
    MAP_K4V: lambda options: [NgramMapK4V(options.ngram_map_k4v)],
    LOOKAHEAD: lambda options: [Lookahead()],
}
