"""Why the ranking is what it is, in ten lines at most."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from localspec.tools.oracle import perfect
from localspec.tools.tune.choice import ENOUGH, Choice
from localspec.tools.tune.costs import Costs
from localspec.tools.tune.study import Row, Study

_ROWS = (2, 4, 8, 16)
#: Lines at most, and of them on draft models.
MOST, _DRAFTS = 10, 3


def why(study: Study, chosen: list[Choice]) -> list[str]:
    """Lines without an end sign."""
    rows = study.rows
    lines = [_passes(study.target), *_threads(study, study.target, "-t")]
    lines += _break_even(study.target, rows)
    drafts = [draft for draft in study.drafts if draft not in study.left_out]
    for draft in [*drafts, *study.left_out][:_DRAFTS]:
        lines.append(_draft_model(study, draft))
    for draft in drafts[:1]:
        lines += _threads(study, study.drafts[draft], f"-td for {draft.name}")
    if rows:
        lines += [_winner(rows[0]), *_where(rows[0]), *_rival(rows)]
    lines += _not_worth_naming(chosen)
    return [*lines[: MOST - 1], _places(study)]


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.1f}" if seconds < 0.1 else f"{1000 * seconds:.0f}"


def _passes(target: Costs) -> str:
    seconds = target.curve.seconds
    shape = ", ".join(f"{rows}: {seconds(rows) / seconds(1):.1f}" for rows in _ROWS)
    return f"a pass of the target takes {_ms(seconds(1))} ms; with more rows so many times that ({shape})"


def _threads(study: Study, costs: Costs, flag: str) -> Iterator[str]:
    if not costs.by_threads:
        return
    fixed = None if study.busy else costs.threads
    shown = ", ".join(f"{count}: {_ms(times[1])}" for count, times in sorted(costs.by_threads.items()))
    reason = "since the machine was busy" if study.busy else "so that they give way to neighbours"
    verdict = f"{flag} {fixed}" if fixed else f"nothing is fixed, {reason}"
    if flag == "-t" or fixed:
        yield f"ms by threads ({shown}): {verdict}"


def _break_even(target: Costs, rows: list[Row]) -> Iterator[str]:
    seconds = target.curve.seconds
    share = seconds(2) / seconds(1) - 1
    if not rows:
        return
    ceiling = perfect(rows[0].setting.spec, seconds)
    most = "" if ceiling is None else f"; perfect guesses that cost nothing would bring ×{ceiling:.2f}"
    yield f"a single guess pays if more than {min(share, 1.0):.0%} of its kind hold{most}"


def _draft_model(study: Study, draft: Path) -> str:
    if draft in study.left_out:
        return f"{draft.name} is left out: {study.left_out[draft]}"
    target_s, guess_s = study.target.curve.seconds(1), study.guess_s(draft)
    return (
        f"{draft.name}: a guess takes {_ms(guess_s)} ms, {guess_s / target_s:.2f} of the target's pass; perfect"
        f" ones would bring ×{study.ceilings[draft]:.2f}"
    )


def _winner(row: Row) -> str:
    mine = [pair.mine.stats for pair in row.pairs if pair.mine.stats is not None]
    steps, drafted = sum(one.steps for one in mine), sum(one.drafted_steps for one in mine)
    first = f"{row.title} is first"
    if row.speedup < 1:
        first = f"plain decoding is first, {row.title} (×{row.speedup:.2f}) the best of those that guess"
    if not drafted or row.cell.alpha is None or row.cell.mean_length is None:
        return f"{first}: it found nothing worth guessing"
    return (
        f"{first}: it guessed in {drafted / max(steps, 1):.0%} of the steps, {row.cell.alpha:.0%} of"
        f" tested guesses held, and such a step brought {row.cell.mean_length:.1f} tokens"
    )


def _where(row: Row) -> Iterator[str]:
    by_category = row.by_category
    if len(by_category) > 1:
        best, worst = max(by_category, key=by_category.__getitem__), min(by_category, key=by_category.__getitem__)
        yield f"most on {best} (×{by_category[best]:.2f}), least on {worst} (×{by_category[worst]:.2f})"


def _rival(rows: list[Row]) -> Iterator[str]:
    if len(rows) < 2 or not rows[1].last:
        return
    doubt = _doubt(rows[0], rows[1])
    close = f"which may be chance: {doubt}" if doubt else "clearly less"
    yield f"the next, {rows[1].title}, reached ×{rows[1].speedup:.2f}, {close}"


def _doubt(first: Row, second: Row) -> str:
    """Why it may be chance that the first is first; nothing where it is not."""
    one, other = first.cell.ratio, second.cell.ratio
    if one is None or other is None or min(first.cell.pairs, second.cell.pairs) < ENOUGH:
        return "there are too few answers"
    return "" if other.high < one.low else "the intervals overlap"


def _not_worth_naming(chosen: list[Choice]) -> Iterator[str]:
    """A draft model that was named and is not worth it, or one that was not and would be."""
    alone = next((one for one in chosen if one.draft is None), None)
    with_model = max((one for one in chosen if one.draft is not None), key=lambda one: one.speedup, default=None)
    if alone is None or with_model is None or with_model.draft is None:
        return
    name, said = with_model.draft.name, f"×{with_model.speedup:.2f} against ×{alone.speedup:.2f} without"
    if with_model.speedup <= max(alone.speedup, 1.0):
        yield f"{name} is not worth its memory ({said}): leave -md out"
    elif alone.row is not None and with_model.row is not None and (doubt := _doubt(with_model.row, alone.row)):
        yield f"{name} may be worth its memory ({said}; {doubt}): -md {with_model.draft}"
    else:
        yield f"{name} is worth its memory ({said}): -md {with_model.draft}"


def _places(study: Study) -> str:
    """Where layers lie, for the pair that was planned for last."""
    if study.room is None:
        return "-ngl and -ngld: as given"
    if not study.plans:
        lack = "no device has room for a layer" if study.room else "there is no device beside the CPU"
        return f"-ngl and -ngld: {lack}, so there is nothing to split"
    *_, (draft, plan) = study.plans.items()
    if plan.whole:
        return "-ngl and -ngld: everything fits on devices, and is fastest there"
    others = "" if draft is None else f" -ngld {plan.best.draft}"
    return (
        f"-ngl {plan.best.target}{others}: {plan.best.speed:.1f} tok/s are to be expected, and {plan.usual.speed:.1f}"
        " if devices are filled with the target first"
    )
