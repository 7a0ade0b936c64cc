"""A minute of measuring: what passes cost, then a race of everything that may guess."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Protocol

from localspec.backends.base import Target
from localspec.drafters.files import DRAFT_MODEL
from localspec.engine import Engine
from localspec.errors import LocalspecError, OutOfMemory
from localspec.plan import Plan
from localspec.tools.cells import Cell
from localspec.tools.local import LocalRunner, Setting
from localspec.tools.oracle import perfect
from localspec.tools.pairs import Pair
from localspec.tools.prompts import Prompt
from localspec.tools.stats import middle
from localspec.tools.tune.costs import Costs, costs
from localspec.tools.tune.field import draft_ways, is_usual, text_ways
from localspec.tools.tune.place import Timed, timed
from localspec.tools.tune.race import Race, race, stages
from localspec.types import SamplingParams, SpecParams

#: Share of the time that thread counts, and the curve, of one model may take.
_COSTS = 0.05
#: Answers are no shorter than this, and shorter than asked for only where a stage could not ask so many prompts.
FEWEST_TOKENS, _PROMPTS_A_STAGE = 24, 3
#: A draft model that was found is not raced if even perfect guesses would bring no more than this.
_HOPELESS = 1.02
#: Fastest over slowest plain answer, where something else runs beside.
_UNEVEN = 2


@dataclass(frozen=True, slots=True)
class Setup:
    """How a pair is loaded; ``None``: as given. Thread counts that are not given are chosen while it runs; layers are
    those on devices."""

    threads: int | None = None
    threads_draft: int | None = None
    layers: int | None = None
    layers_draft: int | None = None


class Loader(Protocol):
    """Where engines come from. All raise as `localspec.load`."""

    def alone(self, draft: Path | None, layers: int | None) -> AbstractContextManager[Engine]:
        """The target, or a draft model in its place, without drafters, with so many layers on devices (``None``: as
        given)."""
        ...

    def sizes(self, draft: Path | None) -> tuple[int, ...]:
        """Bytes of the layers of the target, or of a draft model, as ``-ngl`` moves them; empty: not known."""
        ...

    def pair(
        self, draft: Path | None, types: tuple[str, ...], nodes: int, setup: Setup
    ) -> AbstractContextManager[Engine]:
        """The target with these drafters."""
        ...


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be found out: ``types`` are the drafters to try; the ways to use them are variations of ``base``.
    ``found``: the draft models were found and not named, so that one that does not load is left out. ``counts``:
    thread counts to try for the target, and for draft models, the usual one first. ``room``: bytes of devices to plan
    for, 0 without devices; ``None``: the user has said where layers lie."""

    drafts: tuple[Path, ...]
    found: bool
    types: tuple[str, ...]
    base: SpecParams
    prompts: tuple[Prompt, ...]
    tokens: int
    sampling: SamplingParams
    counts: tuple[int, ...]
    counts_draft: tuple[int, ...]
    room: int | None = 0


@dataclass(frozen=True, slots=True)
class Heat:
    """A race of ways to guess in one engine; of those that take no draft model where ``draft`` is ``None``."""

    draft: Path | None
    ways: tuple[Setting, ...]
    race: Race


@dataclass(frozen=True)
class Row:
    """One line of the ranking. ``last``: it stayed in its race to the end."""

    draft: Path | None
    setting: Setting
    pairs: tuple[Pair, ...]
    last: bool

    @cached_property
    def cell(self) -> Cell:
        return Cell.of(self.pairs)

    @property
    def title(self) -> str:
        """The way to guess, and with which model."""
        return self.setting.name if self.draft is None else f"{self.setting.name} ({self.draft.name})"

    @property
    def speedup(self) -> float:
        return 0.0 if self.cell.ratio is None else self.cell.ratio.median

    @property
    def by_category(self) -> dict[str, float]:
        """Median of the ratios in each category that has any."""
        kinds = dict.fromkeys(pair.prompt.category for pair in self.pairs)
        found = {kind: middle([p.ratio for p in self.pairs if p.prompt.category == kind]) for kind in kinds}
        return {kind: ratio for kind, ratio in found.items() if ratio is not None}


@dataclass
class Study:
    """All that was found out; complete before its ``rows`` are looked at. ``ceilings``: by draft model, what perfect
    guesses would bring; ``left_out``: draft models that were not raced, and why; ``plans``: by draft model, and for the
    target alone under ``None``, where layers lie in the ``room`` of the wish."""

    target: Costs
    drafts: dict[Path, Costs] = field(default_factory=dict)
    ceilings: dict[Path, float] = field(default_factory=dict)
    heats: list[Heat] = field(default_factory=list)
    left_out: dict[Path, str] = field(default_factory=dict)
    plans: dict[Path | None, Plan] = field(default_factory=dict)
    room: int | None = 0
    seconds: float = 0.0
    stopped: bool = False

    @cached_property
    def rows(self) -> list[Row]:
        """The ranking: those that stayed to the end, then the others; the fastest first."""
        rows = [
            Row(_model(heat.draft, one), one, tuple(heat.race.pairs[one.name]), one.name in heat.race.running)
            for heat in self.heats
            for one in heat.ways
            if heat.race.pairs[one.name]
        ]
        return sorted(rows, key=lambda row: (not row.last, -row.speedup))

    @property
    def plain_speeds(self) -> list[float]:
        """Tokens a second of all plain answers."""
        pairs = (pair for row in self.rows for pair in row.pairs)
        return [pair.plain.speed for pair in pairs if pair.plain is not None and pair.plain.speed]

    @property
    def uneven(self) -> bool:
        """Plain answers came at speeds too far apart for a machine of one's own."""
        speeds = self.plain_speeds
        return bool(speeds) and max(speeds) > _UNEVEN * min(speeds)

    @property
    def busy(self) -> bool:
        """Something else ran beside: a thread count that was best then is not to be kept."""
        return self.uneven or any(costs.busy for costs in (self.target, *self.drafts.values()))

    def guess_s(self, draft: Path) -> float:
        """Seconds of a pass of a draft model."""
        return self.drafts[draft].curve.seconds(1)


def _model(draft: Path | None, setting: Setting) -> Path | None:
    """The draft model that a way to guess needs."""
    return draft if DRAFT_MODEL in (setting.spec.types or ()) else None


def study(
    loader: Loader,
    wish: Wish,
    seconds: float,
    *,
    clock: Callable[[], float] = time.perf_counter,
    progress: Callable[[str, float | None], object] = lambda what, share: None,
) -> Study:
    """Measures for about so many seconds, loading included. Ctrl-c during the races ends it early.

    Raises:
        KeyboardInterrupt: ctrl-c before there was anything to tell.
        LocalspecError: the target, or a draft model that was named, does not load; an answer failed.
    """
    return _Study(loader, wish, seconds, clock, progress).run()


class _Study:
    def __init__(
        self,
        loader: Loader,
        wish: Wish,
        seconds: float,
        clock: Callable[[], float],
        progress: Callable[[str, float | None], object],
    ) -> None:
        self._loader, self._wish, self._seconds, self._clock, self._progress = loader, wish, seconds, clock, progress
        self._began = clock()
        self._rows = wish.base.nodes + 1

    def run(self) -> Study:
        target = self._timed(None, self._wish.counts)
        found = Study(target.costs, room=self._wish.room)
        if (plan := self._plan(target, None)) is not None:
            found.plans[None] = plan
            found.target = target.at(plan.best.target, self._rows)
        for draft in self._wish.drafts:
            self._time_draft(found, target, draft)
        heats = self._heats(found)
        try:
            for at, (beside, ways) in enumerate(heats):
                still = sum(len(others) for _, others in heats[at:])
                left = self._seconds - (self._clock() - self._began)
                if left <= 0 and found.heats and beside is not None:
                    found.left_out[beside] = "the time was over: give more --seconds, or name it with -md"
                    continue
                self._race(found, beside, ways, left * len(ways) / still)
                if found.stopped:
                    break
        except KeyboardInterrupt:  # while an engine was loading
            found.stopped = True
        if found.stopped and not found.rows:
            raise KeyboardInterrupt
        found.seconds = self._clock() - self._began
        return found

    # What passes cost

    def _timed(self, draft: Path | None, tried: tuple[int, ...]) -> Timed:
        self._progress("timing passes", None)

        def cost(target: Target, threads: bool) -> Costs:
            rows = self._rows if draft is None else 1
            budget_s = _COSTS * self._seconds
            return costs(target, tried if threads else (), rows, budget_s=budget_s, clock=self._clock)

        room = self._wish.room or 0
        sizes = self._loader.sizes(draft) if room else ()
        return timed(lambda layers: self._loader.alone(draft, layers), cost, sizes, room)

    def _plan(self, target: Timed, draft: Timed | None) -> Plan | None:
        """``None``: there is nothing to move, or no room for it."""
        if target.part is None or (draft is not None and draft.part is None):
            return None
        return Plan.of(target.part, None if draft is None else draft.part, [self._wish.room or 0])

    def _time_draft(self, found: Study, target: Timed, draft: Path) -> None:
        usual = found.target.threads
        tried = tuple(sorted(self._wish.counts_draft, key=lambda count: count != usual))
        try:
            mine = self._timed(draft, tried)
        except LocalspecError as error:
            self._leave_out(found, draft, error)
            return
        found.drafts[draft] = mine.costs
        if (plan := self._plan(target, mine)) is not None:
            found.plans[draft] = plan
            found.drafts[draft] = mine.at(plan.best.draft, 1)
        ceiling = perfect(self._wish.base, found.target.curve.seconds, guess_s=found.guess_s(draft))
        found.ceilings[draft] = ceiling or 0.0
        if self._wish.found and found.ceilings[draft] < _HOPELESS:
            found.left_out[draft] = (
                f"a guess takes {found.guess_s(draft) / found.target.curve.seconds(1):.2f} of the target's pass: even"
                f" perfect ones would bring no more than ×{found.ceilings[draft]:.2f}"
            )

    def _leave_out(self, found: Study, draft: Path, error: LocalspecError) -> None:
        """A model that was named has to work; one that was found need not."""
        if not self._wish.found:
            raise error
        found.left_out[draft] = "it does not fit into memory" if isinstance(error, OutOfMemory) else error.message

    # The races

    def _heats(self, found: Study) -> list[tuple[Path | None, tuple[Setting, ...]]]:
        """Draft models with the ways to guess that race beside them. One that was named races against the drafters
        that need no model; several have an engine each."""
        wish = self._wish
        text, drafting = text_ways(wish.base, wish.types), draft_ways(wish.base, wish.types)
        if wish.drafts and not wish.found:
            return [(wish.drafts[0], (*text, *drafting))]
        drafts = [draft for draft in wish.drafts if draft not in found.left_out]
        return [*([(None, text)] if text else []), *((draft, drafting) for draft in drafts)]

    def _race(self, found: Study, draft: Path | None, ways: tuple[Setting, ...], seconds: float) -> None:
        began = self._clock()
        types = tuple(dict.fromkeys(name for way in ways for name in way.spec.types or ()))
        setup = Setup(found.target.threads, None if draft is None else found.drafts[draft].threads)
        if (plan := found.plans.get(draft)) is not None:
            setup = replace(setup, layers=plan.best.target, layers_draft=None if draft is None else plan.best.draft)
        name = "" if draft is None else f" with {draft.name}"
        try:
            with self._loader.pair(draft, types, self._wish.base.nodes, setup) as engine:
                left = max(seconds - (self._clock() - began), 0.0)
                heat = Heat(
                    draft,
                    ways,
                    race(
                        LocalRunner(engine, ways, self._wish.sampling),
                        [way.name for way in ways],
                        self._wish.prompts,
                        self._tokens(found, len(ways), left),
                        left,
                        keep=[way.name for way in ways if is_usual(way.spec)],
                        clock=self._clock,
                        progress=lambda share: self._progress(f"racing{name}", share),
                    ),
                )
        except LocalspecError as error:
            if draft is None:
                raise
            self._leave_out(found, draft, error)
            return
        found.heats.append(heat)
        found.stopped = heat.race.stopped

    def _tokens(self, found: Study, ways: int, seconds: float) -> int:
        """Tokens an answer: fewer where the model is slow."""
        answers = ways + ways // 2 + 1
        room = seconds / stages(ways) / _PROMPTS_A_STAGE / answers / max(found.target.curve.seconds(1), 1e-9)
        return max(min(self._wish.tokens, int(room)), min(FEWEST_TOKENS, self._wish.tokens))
