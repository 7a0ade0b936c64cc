"""A checklist of this machine, its llama.cpp and a pair of models: facts are gathered once, then judged by pure checks.

Each module of checks takes facts and gives findings; none of them looks at the machine.
"""

from __future__ import annotations

from localspec.tools.doctor import build, cpu, devices, files, memory, models, pairing, terminal
from localspec.tools.doctor.collect import Named, gather
from localspec.tools.doctor.facts import Facts
from localspec.tools.doctor.findings import TITLES, Finding, Level, exit_code

__all__ = ["TITLES", "Facts", "Finding", "Level", "Named", "examine", "exit_code", "gather"]


def examine(facts: Facts) -> list[Finding]:
    """Every finding, in the order of the report."""
    return [
        *build.check(facts.build, facts.machine),
        *cpu.check(facts.machine),
        *devices.check(facts.build),
        *models.check(facts.target, facts.draft, facts.wanted),
        *pairing.check(facts.target, facts.draft, facts.pairing, facts.wanted),
        *memory.check(facts),
        *terminal.check(facts.terminal),
        *files.check(facts.folders, facts.config),
    ]
