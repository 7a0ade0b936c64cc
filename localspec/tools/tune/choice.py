"""What to do from now on, for each pair that was measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec.tools.stats import spread
from localspec.tools.tune.field import is_usual, usual_types
from localspec.tools.tune.study import Row, Study

#: By how much something has to beat what is done anyway, and over how many answers: less than that may be chance.
CLEARLY, ENOUGH = 1.02, 3


@dataclass(frozen=True, slots=True)
class Choice:
    """For a target with ``draft``, or without one: the way to guess (``None``: not at all), whether it is what would be
    done anyway, and what to set, by key of a configuration file."""

    draft: Path | None
    row: Row | None
    usual: bool
    settings: dict[str, Any]

    @property
    def speedup(self) -> float:
        return 1.0 if self.row is None else self.row.speedup


def choices(study: Study, asked: dict[str, Any]) -> list[Choice]:
    """One for the target alone, if drafters without a model raced, and one for each draft model that did. Who names a
    draft model gets a way to guess that uses it: whether it should be named, the ranking says.

    Args:
        asked: settings of guesses that were given for the measurement, by key: later runs need them too.
    """
    drafts = dict.fromkeys(row.draft for row in study.rows)
    return [_choice(study, draft, asked) for draft in sorted(drafts, key=lambda draft: (draft is not None, str(draft)))]


def _choice(study: Study, draft: Path | None, asked: dict[str, Any]) -> Choice:
    rows = [row for row in study.rows if row.draft == draft]
    best, types = rows[0], usual_types(draft=draft is not None)
    usual = next((row for row in rows if is_usual(row.setting.spec)), None)
    if usual is not None and not _beats(best, usual):
        best = usual
    settings = dict(asked)
    if (threads := study.target.threads) and not study.busy:
        settings["threads"] = threads
    if (plan := study.plans.get(draft)) is not None and not plan.whole:
        settings["gpu-layers"] = plan.best.target
        if draft is not None:
            settings["gpu-layers-draft"] = plan.best.draft
    if draft is not None and (threads := study.drafts[draft].threads) and not study.busy:
        settings["threads-draft"] = threads
    if _loses(best):
        return Choice(draft, None, False, {**settings, "spec": "off"})
    if best.setting.spec.types != types:
        settings["spec-type"] = ",".join(best.setting.spec.types or ())
    if best.setting.spec.width > 1:
        settings["spec-tree-width"] = best.setting.spec.width
    return Choice(draft, best, best is usual, settings)


def _beats(best: Row, usual: Row) -> bool:
    """Beyond what chance explains, over the prompts that both have answered, side by side."""
    by_prompt: dict[str, list[float]] = {}
    for mine, theirs in zip(best.pairs, usual.pairs, strict=False):
        if mine.mine.speed and theirs.mine.speed:
            by_prompt.setdefault(mine.prompt.id, []).append(mine.mine.speed / theirs.mine.speed)
    if sum(map(len, by_prompt.values())) < ENOUGH:
        return False
    ratio = spread(list(by_prompt.values()))
    return ratio.low > 1 and ratio.median >= CLEARLY


def _loses(best: Row) -> bool:
    """Against plain decoding, in the same sense."""
    ratio = best.cell.ratio
    return ratio is not None and best.cell.pairs >= ENOUGH and ratio.high < 1
