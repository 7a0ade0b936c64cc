"""An answer with guesses beside a plain one, and what many such pairs say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Protocol

from localspec.tools.prompts import Prompt
from localspec.tools.stats import Spread, middle, spread
from localspec.types import SpecStats

#: Of an answer that counts for nothing: caches fill, buffers are made, graphs are built.
WARM_UP_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Run:
    """One answer: ``tokens`` in it, tokens a second from its first to its last (``None``: too short to say), what was
    said (ids, or a server's text), and statistics of guesses where there are any."""

    tokens: int
    speed: float | None
    said: tuple[int, ...] | str
    stats: SpecStats | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """One answer of a setting and the plain one beside it (``None``: no baseline was asked for)."""

    prompt: Prompt
    plain: Run | None
    mine: Run

    @property
    def ratio(self) -> float | None:
        """Speed against plain decoding. ``None`` where there is nothing to compare: no baseline, no speed-up."""
        if self.plain is None or not self.plain.speed or self.mine.speed is None:
            return None
        return self.mine.speed / self.plain.speed

    @property
    def equal(self) -> bool | None:
        return None if self.plain is None else self.plain.said == self.mine.said


class Runner(Protocol):
    """Whatever answers prompts."""

    def run(self, way: str | None, prompt: Prompt, tokens: int) -> Run:
        """One answer of up to ``tokens`` tokens by the setting ``way``; ``None`` is the baseline.

        Raises:
            LocalspecError: there is no answer.
        """
        ...


@dataclass(frozen=True, slots=True)
class Cell:
    """A setting in one category, or in all: speeds in tokens a second, ``ratio`` against plain decoding (``None``
    without a baseline), how many answers said the same as the plain ones."""

    pairs: int
    speed: float | None
    plain_speed: float | None
    ratio: Spread | None
    mean_length: float | None
    alpha: float | None
    equal: int
    compared: int

    @classmethod
    def of(cls, pairs: Sequence[Pair]) -> Cell:
        by_prompt: dict[str, list[float]] = {}
        for pair in pairs:
            if pair.ratio is not None:
                by_prompt.setdefault(pair.prompt.id, []).append(pair.ratio)
        stats = total(pairs)
        same = [pair.equal for pair in pairs if pair.equal is not None]
        return cls(
            pairs=len(pairs),
            speed=middle([pair.mine.speed for pair in pairs]),
            plain_speed=middle([pair.plain.speed for pair in pairs if pair.plain is not None]),
            ratio=spread(list(by_prompt.values())) if by_prompt else None,
            mean_length=stats.mean_length,
            alpha=stats.alpha,
            equal=sum(same),
            compared=len(same),
        )


def side_by_side(runner: Runner, ways: Sequence[str], prompt: Prompt, tokens: int) -> dict[str, Pair]:
    """Every setting once, each right beside a plain answer. Such an answer serves the setting before it and the one
    after it, so that several settings cost half as many plain answers, and one more.

    Raises:
        LocalspecError: an answer failed.
    """
    found: dict[str, Pair] = {}
    plain = runner.run(None, prompt, tokens)
    for at, way in enumerate(ways):
        mine = runner.run(way, prompt, tokens)
        if at % 2:
            plain = runner.run(None, prompt, tokens)
        found[way] = Pair(prompt, plain, mine)
    return found


def total(pairs: Iterable[Pair]) -> SpecStats:
    """All guesses of a setting."""
    return reduce(add, (pair.mine.stats for pair in pairs if pair.mine.stats is not None), SpecStats())


def plain_host_s(pairs: Iterable[Pair]) -> float:
    """Seconds of a plain step outside of the pass, on average."""
    stats = reduce(add, (p.plain.stats for p in pairs if p.plain and p.plain.stats), SpecStats())
    return stats.t_host / stats.steps if stats.steps else 0.0
