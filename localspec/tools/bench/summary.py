"""What a measurement says, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from localspec.report import speculation_record
from localspec.tools.cells import Cell, total
from localspec.tools.pairs import Measured
from localspec.tools.stats import middle
from localspec.types import SpecStats


@dataclass(frozen=True, slots=True)
class Result:
    """One setting: all categories together, each by itself, all its guesses, and what perfect ones would bring.
    ``same_text`` says whether its texts have to be the baseline's."""

    name: str
    overall: Cell
    categories: Mapping[str, Cell]
    stats: SpecStats
    oracle: float | None = None
    same_text: bool = True

    @property
    def shares(self) -> tuple[float, float, float] | None:
        """Shares of the time that went into guessing, verifying, and everything else."""
        parts = self.stats.t_draft, self.stats.t_verify, self.stats.t_host
        whole = sum(parts)
        return (parts[0] / whole, parts[1] / whole, parts[2] / whole) if whole > 0 else None

    @property
    def accepted_at(self) -> tuple[float, ...]:
        """Share of tested guesses that held, by depth."""
        pairs = zip(self.stats.accepted_at, self.stats.tested_at, strict=True)
        return tuple(held / tested if tested else 0.0 for held, tested in pairs)


@dataclass(frozen=True, slots=True)
class Report:
    """A whole measurement. ``about`` are facts for a headline and for JSON; ``cost`` is rows → seconds of a pass;
    ``memory`` the bytes that were used at most; ``afresh``: no answer here found its prompt in a cache, so that whole
    answers can be compared."""

    results: tuple[Result, ...]
    measured: Measured
    title: str
    about: Mapping[str, Any] = field(default_factory=dict)
    cost: Mapping[int, float] = field(default_factory=dict)
    memory: int | None = None
    afresh: bool = False

    @property
    def categories(self) -> tuple[str, ...]:
        return self.measured.categories

    @property
    def plain_speeds(self) -> dict[str | None, float | None]:
        """Category (``None``: all) → median speed of the baseline, in the whole run."""
        pairs = [pair for result in self.results for pair in self.measured.of(result.name)]
        speeds = {
            category: [p.plain.speed for p in pairs if p.plain is not None and category in (None, p.prompt.category)]
            for category in (None, *self.categories)
        }
        return {category: middle(found) for category, found in speeds.items()}


def result(measured: Measured, way: str, oracle: float | None = None, *, same_text: bool = True) -> Result:
    """What was measured of one setting."""
    cells = {category: Cell.of(measured.of(way, category)) for category in measured.categories}
    return Result(way, Cell.of(measured.of(way)), cells, total(measured.of(way)), oracle, same_text)


def record(report: Report) -> dict[str, Any]:
    """All of it as one JSON object, down to each pair, so that other statistics can be made of it."""
    order = report.measured.order
    return {
        **report.about,
        "title": report.title,
        "rounds": report.measured.rounds,
        "rounds_wanted": order.rounds,
        "budget_s": order.budget_s,
        "n_predict": order.tokens,
        "baseline": order.baseline,
        "peak_memory_bytes": report.memory,
        "pass_ms": {str(rows): 1000 * seconds for rows, seconds in report.cost.items()},
        "plain_tokens_per_second": {category or "all": speed for category, speed in report.plain_speeds.items()},
        "settings": [_setting(one, report.measured) for one in report.results],
    }


def _setting(one: Result, measured: Measured) -> dict[str, Any]:
    return {
        "setting": one.name,
        "same_text_promised": one.same_text,
        "overall": asdict(one.overall),
        "categories": {name: asdict(cell) for name, cell in one.categories.items()},
        "time_shares": dict(zip(("draft", "verify", "host"), one.shares or (), strict=False)),
        "oracle": one.oracle,
        "speculation": speculation_record(one.stats),
        "pairs": [
            {
                "prompt": pair.prompt.id,
                "category": pair.prompt.category,
                "tokens": pair.mine.tokens,
                "tokens_per_second": pair.mine.speed,
                "plain_tokens_per_second": None if pair.plain is None else pair.plain.speed,
                "seconds": pair.mine.seconds,
                "plain_seconds": None if pair.plain is None else pair.plain.seconds,
                "ratio": pair.ratio,
                "whole_ratio": pair.whole,
                "equal": pair.equal,
            }
            for pair in measured.of(one.name)
        ],
    }
