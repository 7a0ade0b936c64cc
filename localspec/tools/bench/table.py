"""A measurement for people: a table for the terminal, Markdown, CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import astuple

from localspec.hub.sizes import human
from localspec.tools.bench.summary import Report, Result
from localspec.tools.cells import Cell
from localspec.tools.pairs import PLAIN
from localspec.tools.stats import Spread

#: Columns of the widest bar, which stands for the largest ratio.
_BAR = 32
_EIGHTHS = " ▏▎▍▌▋▊▉"
_DEPTHS = 8

Rows = list[tuple[str, ...]]


def main_table(report: Report) -> tuple[tuple[str, ...], Rows]:
    """Head and rows: the baseline, then every setting; a column a category, and one for all."""
    order, plain = report.measured.order, report.plain_speeds
    columns = _columns(report)
    head = ("", *columns, "all", "same text")
    rows: Rows = []
    if order.baseline is not None:
        rows.append((order.baseline, *(_speed(plain[category]) for category in (*columns, None)), ""))
    for one in report.results:
        cells = [*(one.categories[name] for name in columns), one.overall]
        rows.append((one.name, *map(_cell, cells), _same(one)))
    return head, rows


def whole_table(report: Report) -> tuple[tuple[str, ...], Rows]:
    """As `main_table`, the ratios of whole answers: reading the prompt is part of the time."""
    columns = _columns(report)
    return ("with the prompt", *columns, "all"), [
        (one.name, *(_interval(cell.whole) for cell in (*(one.categories[name] for name in columns), one.overall)))
        for one in report.results
    ]


def detail_table(report: Report) -> tuple[tuple[str, ...], Rows]:
    """Where the time went, how far guesses held, how many tokens a step with guesses had to bring to pay, and what
    perfect ones would bring."""
    head = ("", "draft / verify / host", "accepted at depth 1, 2, …", "pays from", "perfect guesses")
    return head, [
        (one.name, _shares(one), _depths(one), _length(one.stats.break_even), _ratio(one.oracle))
        for one in report.results
    ]


def markdown(report: Report) -> str:
    """All tables, under a line that says what was measured."""
    return "\n\n".join([report.title, *(_md(*one) for one in _tables(report)), *notes(report)]) + "\n"


def _md(head: Sequence[str], rows: Rows) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def terminal(report: Report, width: int) -> str:
    """All tables in columns, and a bar a setting."""
    from rich.console import Console
    from rich.table import Table

    console = Console(file=io.StringIO(), width=width, color_system=None, highlight=False)
    console.print(report.title, markup=False)
    for head, rows in _tables(report):
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for name in head:
            table.add_column(name)
        for row in rows:
            table.add_row(*(cell.replace("[", "\\[") for cell in row))
        console.print()
        console.print(table)
    console.print()
    for line in bars(report):
        console.print(line, markup=False, soft_wrap=True)
    for line in notes(report):
        console.print(line, markup=False)
    file = console.file
    assert isinstance(file, io.StringIO)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


def bars(report: Report) -> Iterator[str]:
    """A bar a setting, the baseline among them; none without one."""
    ratios = {one.name: one.overall.ratio.median for one in report.results if one.overall.ratio is not None}
    baseline = report.measured.order.baseline
    if baseline is None or not ratios:
        return
    all_ = {baseline: 1.0, **ratios}
    name_width, most = max(map(len, all_)), max(all_.values())
    for name, ratio in all_.items():
        yield f"{name:<{name_width}}  {bar(ratio / most, _BAR):<{_BAR}}  ×{ratio:.2f}"


def bar(share: float, width: int) -> str:
    """A bar of ``share`` of ``width`` columns, in eighths of one."""
    eighths = round(max(share, 0.0) * width * 8)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def notes(report: Report) -> Iterator[str]:
    """What a reader has to know beside the numbers; a line each."""
    measured, order = report.measured, report.measured.order
    if measured.cut_short:
        yield (
            f"Only {measured.rounds} of {order.rounds} rounds: the budget of {order.budget_s:g} seconds allows no more."
        )
    if order.baseline is None:
        yield "No speed-up is shown: there is no baseline in this run."
    if report.memory is not None:
        yield f"Peak memory: {human(report.memory)}."
    for one in report.results:
        differ = one.overall.compared - one.overall.equal
        if one.same_text and differ:
            advice = "; localspec verify says whether that is rounding" if order.baseline == PLAIN else ""
            yield f"{one.name}: {differ} of {one.overall.compared} texts differ from the {order.baseline} ones{advice}."


def comma_separated(report: Report) -> str:
    """A line for each setting and category."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    names = ("pairs", "tokens_per_second", "plain_tokens_per_second", "ratio", "low", "high", "least", "most")
    whole = ("whole_ratio", "whole_low", "whole_high", "whole_least", "whole_most")
    writer.writerow(("setting", "category", *names, *whole, "mean_length", "alpha", "equal", "compared"))
    for one in report.results:
        for category, cell in (*one.categories.items(), ("all", one.overall)):
            ratios = (*_numbers(cell.ratio), *_numbers(cell.whole))
            speeds = cell.pairs, cell.speed, cell.plain_speed
            writer.writerow(
                (one.name, category, *speeds, *ratios, cell.mean_length, cell.alpha, cell.equal, cell.compared)
            )
    return file.getvalue()


def _numbers(spread: Spread | None) -> tuple[float | None, ...]:
    return (None,) * 5 if spread is None else astuple(spread)


def _tables(report: Report) -> Iterator[tuple[tuple[str, ...], Rows]]:
    """Those that have something to say."""
    yield main_table(report)
    if report.afresh and report.measured.order.baseline is not None:
        yield whole_table(report)
    if any(one.stats.steps for one in report.results):
        yield detail_table(report)


def _columns(report: Report) -> tuple[str, ...]:
    return report.categories if len(report.categories) > 1 else ()


# Cells


def _cell(cell: Cell) -> str:
    """``×1.42 [1.31–1.55], 3.1, 0.82``: median of the ratios, its interval, mean accepted length, α."""
    speed = _speed(cell.speed) if cell.ratio is None else _interval(cell.ratio)
    if cell.mean_length is None or cell.alpha is None:
        return speed
    return f"{speed}, {cell.mean_length:.1f}, {cell.alpha:.2f}"


def _speed(speed: float | None) -> str:
    return "-" if speed is None else f"{speed:.1f} tok/s"


def _interval(spread: Spread | None) -> str:
    return "-" if spread is None else f"×{spread.median:.2f} [{spread.low:.2f}–{spread.high:.2f}]"


def _length(tokens: float | None) -> str:
    return "-" if tokens is None else f"{tokens:.2f} tokens"


def _ratio(ratio: float | None) -> str:
    return "-" if ratio is None else f"×{ratio:.2f}"


def _same(one: Result) -> str:
    if not one.overall.compared:
        return "-"
    return f"{one.overall.equal}/{one.overall.compared}" if one.same_text else "not promised"


def _shares(one: Result) -> str:
    return "-" if one.shares is None else " / ".join(f"{share:.0%}" for share in one.shares)


def _depths(one: Result) -> str:
    shown = [f"{share:.2f}" for share in one.accepted_at[:_DEPTHS]]
    return " ".join([*shown, *(["…"] if len(one.accepted_at) > _DEPTHS else [])]) or "no guess"
