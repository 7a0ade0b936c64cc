"""What many pairs of answers say of a setting."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

from localspec.tools.pairs import Pair
from localspec.tools.stats import Spread, middle, spread
from localspec.types import SpecStats


@dataclass(frozen=True, slots=True)
class Cell:
    """A setting in one category, or in all: speeds in tokens a second; against the baseline (``None`` without one) the
    ``ratio`` of speeds, and with the reading of the prompt that of ``whole`` answers; how many answers said the same as
    the baseline's."""

    pairs: int
    speed: float | None
    plain_speed: float | None
    ratio: Spread | None
    whole: Spread | None
    mean_length: float | None
    alpha: float | None
    equal: int
    compared: int

    @classmethod
    def of(cls, pairs: Sequence[Pair]) -> Cell:
        stats = total(pairs)
        same = [pair.equal for pair in pairs if pair.equal is not None]
        return cls(
            pairs=len(pairs),
            speed=middle([pair.mine.speed for pair in pairs]),
            plain_speed=middle([pair.plain.speed for pair in pairs if pair.plain is not None]),
            ratio=_spread((pair.prompt.id, pair.ratio) for pair in pairs),
            whole=_spread((pair.prompt.id, pair.whole) for pair in pairs),
            mean_length=stats.mean_length,
            alpha=stats.alpha,
            equal=sum(same),
            compared=len(same),
        )


def _spread(ratios: Iterable[tuple[str, float | None]]) -> Spread | None:
    """The spread of those ratios that there are, by prompt."""
    by_prompt: dict[str, list[float]] = {}
    for prompt, ratio in ratios:
        if ratio is not None:
            by_prompt.setdefault(prompt, []).append(ratio)
    return spread(list(by_prompt.values())) if by_prompt else None


def total(pairs: Iterable[Pair]) -> SpecStats:
    """All guesses of a setting."""
    return reduce(add, (pair.mine.stats for pair in pairs if pair.mine.stats is not None), SpecStats())


def plain_host_s(pairs: Iterable[Pair]) -> float:
    """Seconds of a plain step outside of the pass, on average."""
    stats = reduce(add, (p.plain.stats for p in pairs if p.plain and p.plain.stats), SpecStats())
    return stats.t_host / stats.steps if stats.steps else 0.0
