"""The one place where statistics of speculation are computed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from localspec.types import SourceStats, SpecStats, StepStats


class StatsBook:
    """Adds up the steps of one answer. Invariant: emitted + cut = steps + accepted."""

    def __init__(self) -> None:
        self._totals: Counter[str] = Counter()
        self._times = dict.fromkeys(("t_draft", "t_verify", "t_host", "t_plain", "t_judged", "plain_worth"), 0.0)
        self._accepted_at: list[int] = []
        self._tested_at: list[int] = []
        self._lengths: list[int] = []
        self._drafted_by: Counter[str] = Counter()
        self._accepted_by: Counter[str] = Counter()

    def add(self, step: StepStats, drafted: Sequence[str], accepted: Sequence[str]) -> None:
        """Adds one step; ``drafted`` and ``accepted`` are the sources of its nodes."""
        for name in ("draft_n", "tested", "accepted", "emitted", "cut"):
            self._totals[name] += getattr(step, name)
        for name in ("t_draft", "t_verify", "t_host", "t_plain"):
            self._times[name] += getattr(step, name) or 0.0
        seconds = step.t_draft + step.t_verify + step.t_host
        if step.t_plain is not None:
            self._times["t_judged"] += seconds
        self._totals["steps"] += 1
        if not step.draft_n:
            return
        if step.t_plain:
            self._times["plain_worth"] += seconds * step.emitted / step.t_plain
            self._totals["judged_drafts"] += 1
        self._totals["drafted_steps"] += 1
        self._drafted_by.update(drafted)
        self._accepted_by.update(accepted)
        _count(self._lengths, step.accepted)
        for depth in range(step.tested):
            _count(self._tested_at, depth)
        for depth in range(step.accepted):
            _count(self._accepted_at, depth)

    def snapshot(self) -> SpecStats:
        width = len(self._tested_at)
        return SpecStats(
            steps=self._totals["steps"],
            drafted_steps=self._totals["drafted_steps"],
            draft_n=self._totals["draft_n"],
            tested=self._totals["tested"],
            accepted=self._totals["accepted"],
            emitted=self._totals["emitted"],
            cut=self._totals["cut"],
            t_draft=self._times["t_draft"],
            t_verify=self._times["t_verify"],
            t_host=self._times["t_host"],
            t_plain=self._times["t_plain"],
            t_judged=self._times["t_judged"],
            plain_worth=self._times["plain_worth"],
            judged_drafts=self._totals["judged_drafts"],
            accepted_at=tuple(self._accepted_at) + (0,) * (width - len(self._accepted_at)),
            tested_at=tuple(self._tested_at),
            lengths=tuple(self._lengths),
            by_source=tuple(
                SourceStats(name, n, self._accepted_by[name]) for name, n in sorted(self._drafted_by.items())
            ),
        )


def _count(counts: list[int], index: int) -> None:
    counts.extend([0] * (index + 1 - len(counts)))
    counts[index] += 1
