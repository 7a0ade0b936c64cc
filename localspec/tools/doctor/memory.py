"""Is there room for weights and caches, and for how long a context?"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from localspec.backends.memory import ROOM
from localspec.hub.sizes import human
from localspec.tools.doctor.facts import Device, Facts, Header, Machine, Model, Wanted
from localspec.tools.doctor.findings import Finding, Level

#: Contexts are tried in these steps, up to more than any model has.
_STEP, _MOST = 256, 1 << 26
_LITTLE = 1_000_000_000


def check(facts: Facts) -> Iterator[Finding]:
    """Findings of the group ``memory``."""
    machine = facts.machine
    yield _free(machine)
    if machine.limit is not None and machine.memory is not None and machine.limit < machine.memory:
        what = f"the container may use {human(machine.limit)} of the machine's {human(machine.memory)}"
        yield Finding("memory.limit", Level.NOTE, what, "raise the container's memory limit")
    if facts.target is not None and facts.target.header is not None:
        devices = facts.build.library.devices if facts.build.library is not None else ()
        yield from _Fit(facts.target.header, _header(facts.draft), facts.wanted).findings(machine.free, devices)


def _header(model: Model | None) -> Header | None:
    return None if model is None else model.header


def _free(machine: Machine) -> Finding:
    if machine.free is None or machine.memory is None:
        return Finding("memory.free", Level.NOTE, "the system does not say how much memory is free", "see its monitor")
    said = f"{human(machine.free)} of {human(machine.memory)} memory are free"
    if machine.free < min(_LITTLE, machine.memory // 10):
        return Finding("memory.free", Level.WARNING, f"{said}: that is little", "end other programs")
    return Finding("memory.free", Level.OK, said)


@dataclass(frozen=True, slots=True)
class _Fit:
    """What two models and their caches take; a draft model has no more context than it was trained for."""

    target: Header
    draft: Header | None
    wanted: Wanted

    def findings(self, free: int | None, devices: Sequence[Device]) -> Iterator[Finding]:
        n_ctx = self.wanted.n_ctx or self.target.context
        if n_ctx is None or self.target.cache is None or (self.draft is not None and self.draft.cache is None):
            what = f"weights take {human(self.weights)}; what the cache takes cannot be told from the file"
            yield Finding("memory.fit", Level.NOTE, what, "--dump-load shows it")
        elif free is None:
            what = f"{self._parts(n_ctx)}; how much is free is not known"
            yield Finding("memory.fit", Level.NOTE, what, "-c N for less")
        else:
            offload = sum(device.free for device in devices if not device.shared)
            yield self._whole(n_ctx, free + offload)
            if devices:
                yield self._on_devices(n_ctx, sum(device.free for device in devices))

    @property
    def weights(self) -> int:
        return self.target.size + (0 if self.draft is None else self.draft.size)

    def needs(self, n_ctx: int) -> int:
        """Bytes of weights and caches. Where the size of a cache is not known it counts as none."""
        total = self.weights
        if self.target.cache is not None:
            total += self.target.cache.size(n_ctx, *self.wanted.target)
        if self.draft is not None and self.draft.cache is not None:
            total += self.draft.cache.size(min(n_ctx, self.draft.context or n_ctx), *self.wanted.draft)
        return total

    def longest(self, room: int) -> int:
        """The longest context that fits into so many bytes; 0 if none does."""
        return bisect_right(range(_STEP, _MOST + 1, _STEP), room, key=self.needs) * _STEP

    def _whole(self, n_ctx: int, there: int) -> Finding:
        room = int(ROOM * there)
        said, most = f"{self._parts(n_ctx)} of {human(there)} free", self.longest(room)
        if self.needs(n_ctx) <= room:
            return Finding("memory.fit", Level.OK, f"{said}; {f'-c up to {most}' if most < _MOST else 'any -c'} fits")
        if not most:
            mend = "a smaller quantisation or model" + (", or leave -md out" if self.draft is not None else "")
            return Finding("memory.fit", Level.PROBLEM, f"{said}: the weights alone are too much", mend)
        mend = f"-c {min(most, self.target.context or most)}, or a smaller cache (-ctk q8_0)"
        return Finding("memory.fit", Level.PROBLEM, f"{said}: too much", mend)

    def _on_devices(self, n_ctx: int, there: int) -> Finding:
        if self.needs(n_ctx) <= ROOM * there:
            return Finding("memory.gpu", Level.OK, f"all of it fits into the {human(there)} free on devices (-ngl all)")
        what = (
            f"not all of it fits into the {human(there)} free on devices: some layers stay on the CPU, which is slower"
        )
        mend = f"-c {most}" if (most := self.longest(int(ROOM * there))) else "a smaller quantisation, or -ngl auto"
        return Finding("memory.gpu", Level.NOTE, what, mend)

    def _parts(self, n_ctx: int) -> str:
        need, both = self.needs(n_ctx), self.draft is not None
        weights = f"weights{' of both models' * both} ({human(self.weights)})"
        cache = f"cache{'s' * both} ({human(need - self.weights)})"
        return f"{weights} and {cache} for a context of {n_ctx} tokens need {human(need)}"
