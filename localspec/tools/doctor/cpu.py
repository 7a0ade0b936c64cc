"""How much of the CPU there is to have."""

from __future__ import annotations

from collections.abc import Iterator

from localspec.tools.doctor.facts import Machine
from localspec.tools.doctor.findings import Finding, Level


def check(machine: Machine) -> Iterator[Finding]:
    """Findings of the group ``cpu``."""
    cores = f"{machine.cores} core{'s' * (machine.cores != 1)}"
    yield Finding("cpu.cores", Level.OK, f"{machine.processor}, {cores} for this process")
    if machine.quota is not None and machine.quota < machine.cores:
        threads = max(int(machine.quota), 1)
        what = f"the container may use {machine.quota:g} of {cores}: more threads are halted in the middle of a pass"
        yield Finding("cpu.limit", Level.WARNING, what, f"-t {threads}, or raise the container's CPU limit")
    if machine.load is not None:
        yield _load(machine.load, machine.cores)


def _load(load: float, cores: int) -> Finding:
    said = f"{load:.1f} threads want a core (mean of a minute)"
    if load >= cores:
        what = f"{said} and there are {cores}: tokens come slowly"
        return Finding("cpu.load", Level.WARNING, what, "end other programs; leave -t out, so that threads adapt")
    if load >= cores / 2:
        return Finding("cpu.load", Level.NOTE, f"{said} of {cores}: tokens may come slower", "end other programs")
    return Finding("cpu.load", Level.OK, f"the machine is quiet: {said} of {cores}")
