"""What a check says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from localspec.errors import ExitCode


class Level(StrEnum):
    """``note`` is worth knowing, ``warning`` costs speed or a feature, ``problem`` keeps something from working."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"


#: Group of a finding → its heading, in the order of the report.
TITLES = {
    "build": "Build",
    "cpu": "CPU",
    "devices": "Devices",
    "target": "Target",
    "draft": "Draft model",
    "pair": "Pair",
    "memory": "Memory",
    "terminal": "Terminal",
    "files": "Files",
}
#: What a problem of a group makes of the exit code, the first that there is; any other is 1.
_CODES = (("target", ExitCode.MODEL), ("draft", ExitCode.MODEL), ("pair", ExitCode.MODEL), ("memory", ExitCode.MEMORY))


@dataclass(frozen=True, slots=True)
class Finding:
    """``check`` is a name that stays, ``group.subject``; ``text`` says what and why in one line; ``mend`` is the flag
    or the command that helps, "" where nothing need be done."""

    check: str
    level: Level
    text: str
    mend: str = ""

    @property
    def group(self) -> str:
        return self.check.partition(".")[0]


def exit_code(findings: Iterable[Finding]) -> ExitCode:
    """What ``localspec doctor`` ends with."""
    groups = {finding.group for finding in findings if finding.level is Level.PROBLEM}
    return next((code for group, code in _CODES if group in groups), ExitCode.RUNTIME if groups else ExitCode.OK)
