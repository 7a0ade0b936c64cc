"""``localspec doctor``: what stands in the way on this machine, and what mends it."""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from io import StringIO
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.cli.diagnostics import has_colour
from localspec.cli.output import Output
from localspec.cli.session import names_nearby
from localspec.errors import UsageError
from localspec.hub.shelf import located
from localspec.models.demo import DEMO
from localspec.options import Values, all_options
from localspec.options.config import files_there, layers, user_file
from localspec.talk.history import history_file
from localspec.text.printable import one_line
from localspec.tools.doctor import TITLES, Finding, Level, Named, examine, exit_code, gather
from localspec.tools.doctor.facts import Config, Fault, Terminal, Wanted

if TYPE_CHECKING:
    from rich.table import Table

_STYLES = {Level.OK: "green", Level.NOTE: "cyan", Level.WARNING: "yellow", Level.PROBLEM: "bold red"}
_WIDTH = max(map(len, Level))


def doctor(values: Values) -> int:
    """Runs every check; returns 0, or the code of the first problem."""
    output = Output()
    findings = examine(
        gather(
            _named(values["model"] or (DEMO if values["model_draft"] is not None else None)),
            _named(values["model_draft"]),
            wanted=_wanted(values),
            terminal=_terminal(),
            config=_config(values["config"], values["profile"]),
            history=history_file(),
        )
    )
    code = exit_code(findings)
    if values["json"]:
        output.record({"findings": [asdict(finding) for finding in findings], "exit_code": int(code)})
    elif output.terminal:
        output.sequence(drawn(findings, shutil.get_terminal_size().columns, colour=has_colour(sys.stdout)))
    else:
        output.text("\n".join(plain(findings)) + "\n")
    return code


def _named(text: str | None) -> Named | None:
    def find() -> Path:
        assert text is not None
        with names_nearby(text):
            return located(text)

    return None if text is None else Named(text, find)


def _wanted(values: Values) -> Wanted:
    return Wanted(
        values["ctx_size"],
        (values["cache_type_k"], values["cache_type_v"]),
        (values["cache_type_k_draft"], values["cache_type_v_draft"]),
    )


def _terminal() -> Terminal:
    is_terminal = sys.stdout.isatty()
    return Terminal(
        term=os.environ.get("TERM", ""),
        stdin=sys.stdin is not None and sys.stdin.isatty(),
        stdout=is_terminal,
        colour=has_colour(sys.stdout),
        no_colour=bool(os.environ.get("NO_COLOR")),
        encoding=sys.stdout.encoding or "",
        columns=shutil.get_terminal_size().columns if is_terminal else None,
    )


def _config(named: str | None, profile: str | None) -> Config:
    files: tuple[Path, ...] = ()
    try:
        files = tuple(path for path, _ in files_there(named))
        for _ in layers(all_options(), named, profile):
            pass
    except UsageError as error:
        return Config(files, user_file(), Fault(error.message, error.hint))
    return Config(files, user_file())


# Reports


def plain(findings: Sequence[Finding]) -> Iterator[str]:
    """The report for pipes: a line a finding, below the heading of its group."""
    for title, members in _grouped(findings):
        yield title
        for finding in members:
            mend = f" [mend: {one_line(finding.mend)}]" if finding.mend else ""
            yield f"  {finding.level:{_WIDTH}}  {one_line(finding.text)}{mend}"
    yield _summary(findings)


def drawn(findings: Sequence[Finding], columns: int, *, colour: bool) -> str:
    """The report for a terminal of so many columns."""
    from rich.console import Console, Group
    from rich.text import Text

    parts = [Group(Text(title, "bold"), _table(members)) for title, members in _grouped(findings)]
    paper = Console(file=StringIO(), width=columns, force_terminal=colour, color_system="standard" if colour else None)
    with paper.capture() as captured:
        paper.print(*parts, Text(_summary(findings)), sep="\n")
    return "\n".join(line.rstrip() for line in captured.get().split("\n"))


def _table(findings: Iterable[Finding]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(width=_WIDTH + 2)
    table.add_column(overflow="fold")
    for finding in findings:
        text = Text(one_line(finding.text))
        if finding.mend:
            text.append(f"\nmend: {one_line(finding.mend)}", "dim")
        table.add_row(Text(f"  {finding.level}", _STYLES[finding.level]), text)
    return table


def _grouped(findings: Sequence[Finding]) -> Iterator[tuple[str, list[Finding]]]:
    for group, members in groupby(findings, lambda finding: finding.group):
        yield TITLES[group], list(members)


def _summary(findings: Sequence[Finding]) -> str:
    counts = Counter(finding.level for finding in findings)
    said = [
        f"{counts[level]} {level}{'s' * (counts[level] != 1)}"
        for level in (Level.PROBLEM, Level.WARNING, Level.NOTE)
        if counts[level]
    ]
    return ", ".join(said) if said else "All is well."
