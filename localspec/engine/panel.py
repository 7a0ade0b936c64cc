"""The drafters of an engine as one: asked in turn, and each taken out alone when it fails."""

from __future__ import annotations

import logging
import math
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from localspec.backends.base import Rows
from localspec.drafters import forced
from localspec.drafters.base import EARLIER, Ask, Draft, Drafter, Features, spec_type
from localspec.errors import Cancelled, LocalspecError
from localspec.spec.tree import TokenTree
from localspec.types import GenerationRequest, Standing

log = logging.getLogger(__name__)


class Panel:
    """All drafters of an engine, in order of preference."""

    def __init__(self, drafters: Sequence[Drafter] = ()) -> None:
        self._drafters = list(drafters)
        self._out: dict[int, set[str]] = defaultdict(set)  # sequence → drafters paused for it
        self._notices: list[tuple[int, Standing]] = []

    @property
    def types(self) -> tuple[str, ...]:
        """Their ``--spec-type``s: what a request can choose among."""
        return tuple(dict.fromkeys(spec_type(drafter.name) for drafter in self._drafters))

    @property
    def needs(self) -> tuple[int, ...]:
        """Layers whose hidden states some drafter reads."""
        return tuple(sorted({layer for drafter in self._drafters for layer in drafter.needs}))

    @property
    def costly(self) -> frozenset[str]:
        """Those whose guesses cost passes of a model."""
        return frozenset(drafter.name for drafter in self._drafters if drafter.costs_passes)

    def open(self, seq: int) -> None:
        for drafter in self._drafters:
            drafter.open(seq)

    def fork(self, seq: int, new: int, n: int) -> None:
        for drafter in self._drafters:
            drafter.fork(seq, new, n)

    def close(self, seq: int) -> None:
        self._out.pop(seq, None)
        for drafter in self._drafters:
            drafter.close(seq)

    def truncate(self, seq: int, n: int) -> None:
        for drafter in self._drafters:
            drafter.truncate(seq, n)

    def resume(self, seq: int) -> None:
        """A new prompt: what paused a drafter may be gone."""
        self._out.pop(seq, None)
        self._notices = [notice for notice in self._notices if notice[0] != seq]

    def lags(self, seq: int, n_past: int, types: Collection[str] | None, idle: Collection[str] = ()) -> dict[str, int]:
        """Those of ``types`` (``None`` = all) that can be asked now, and how many of the committed tokens each has yet
        to read. ``idle`` have nothing to draw from in this answer."""
        heeding = [drafter for drafter in self._heeding(seq) if types is None or spec_type(drafter.name) in types]
        return {drafter.name: drafter.lag(seq, n_past) for drafter in heeding if drafter.name not in idle}

    def gap(self, seq: int, n_past: int) -> int:
        """How many of the last committed tokens the target has to read again: a drafter that lives on hidden states has
        missed them, and they come with the target's passes only."""
        return max((drafter.gap(seq, n_past) for drafter in self._heeding(seq)), default=0)

    def prefill(self, seq: int, start: int, tokens: Sequence[int], features: Features) -> None:
        for drafter in self._heeding(seq):
            try:
                drafter.prefill(seq, start, tokens, features)
            except Exception as error:
                self._stumbled(drafter, seq, error)

    def propose(self, asks: Sequence[Mapping[str, Ask]]) -> tuple[list[dict[str, Draft]], dict[str, float]]:
        """Asks the drafters that each sequence has an ask for; returns their guesses by name, without those that had
        none, and the seconds each drafter took. Under the rule ``ratio`` drawn guesses of different laws do not mix, so
        the first drafter that has any is the only one.

        Raises:
            Cancelled: the step was interrupted.
        """
        drafts: list[dict[str, Draft]] = [{} for _ in asks]
        seconds = {}
        # Those that are asked only if need be come last.
        waiting = {name for mine in asks for name, ask in mine.items() if ask.price.until < math.inf}
        for drafter in sorted(self._drafters, key=lambda one: one.name in waiting) if waiting else self._drafters:
            name = drafter.name
            asked = [i for i, mine in enumerate(asks) if name in mine and _is_wanted(name, mine, drafts[i])]
            if not asked:
                continue
            began = time.perf_counter()
            for i, draft in zip(asked, self._ask(drafter, [asks[i][name] for i in asked]), strict=True):
                if draft.tree.draft_n:
                    drafts[i][name] = draft
            seconds[name] = time.perf_counter() - began
        return drafts, seconds

    def _ask(self, drafter: Drafter, asks: list[Ask]) -> list[Draft]:
        """Asks one drafter; one that fails is paused and the answer goes on without it."""
        try:
            drafts = [_fit(draft, ask) for draft, ask in zip(drafter.propose(asks), asks, strict=True)]
        except Cancelled:
            raise
        except Exception as error:
            log.exception("drafter %s failed", drafter.name)
            drafts = [Draft.nothing(ask, out=_reason(error)) for ask in asks]
        for ask, draft in zip(asks, drafts, strict=True):
            if draft.out is not None:
                self._pause(drafter, ask.seq, draft.out)
        return drafts

    def _heeding(self, seq: int) -> list[Drafter]:
        """The drafters that are not paused for ``seq``."""
        return [drafter for drafter in self._drafters if drafter.name not in self._out[seq]]

    def _pause(self, drafter: Drafter, seq: int, reason: str) -> None:
        self._out[seq].add(drafter.name)
        self._notices.append((seq, Standing(drafter.name, "paused", reason)))

    def _stumbled(self, drafter: Drafter, seq: int, error: Exception) -> None:
        """What a drafter fails to take in pauses it. An interrupt does too: the target has read on already."""
        log.error("drafter %s failed", drafter.name, exc_info=error)
        self._pause(drafter, seq, _reason(error))

    def observe(self, seq: int, start: int, tree: TokenTree, path: Sequence[int], rows: Rows) -> None:
        for drafter in self._heeding(seq):
            try:
                drafter.observe(seq, start, tree, path, rows)
            except Exception as error:
                self._stumbled(drafter, seq, error)

    def notices(self) -> list[tuple[int, Standing]]:
        """What happened since the last call, by sequence."""
        notices, self._notices = self._notices, []
        return notices

    def interrupt(self, on: bool) -> None:
        for drafter in self._drafters:
            drafter.interrupt(on)

    def set_threads(self, n: int) -> None:
        for drafter in self._drafters:
            drafter.set_threads(n)

    def close_all(self) -> None:
        for drafter in self._drafters:
            drafter.close_all()


def _is_wanted(name: str, asks: Mapping[str, Ask], drafts: Mapping[str, Draft]) -> bool:
    """Whether a drafter is still to be asked, given what others guess."""
    ask = asks[name]
    if ask.rule == "ratio":
        return not drafts
    if ask.price.until == math.inf:
        return True
    return all(asks[other].price.brought(draft.tree) < ask.price.until for other, draft in drafts.items())


def _fit(draft: Draft, ask: Ask) -> Draft:
    """The draft within the grammar, and within the limits that were asked for.

    Raises:
        ValueError: it is over another token than the pending one, or of drawn guesses, which cannot be cut.
    """
    if draft.tree.tokens[0] != ask.tokens[-1]:
        raise ValueError("guesses over a token that is not pending")
    if ask.state.grammar is not None:
        draft = draft.within(ask.state.grammar)
    tree = ask.price.limits.fit(draft.tree)
    if tree is draft.tree:
        return draft
    if draft.laws:
        raise ValueError("more guesses were drawn than asked for")
    return Draft(tree, out=draft.out)


def _reason(error: Exception) -> str:
    return error.message if isinstance(error, LocalspecError) else f"{type(error).__name__}: {error}"


def idle_sources(request: GenerationRequest, earlier: Sequence[Sequence[int]]) -> frozenset[str]:
    """Sources that have nothing to draw from in this answer."""
    has = {EARLIER: bool(earlier), forced.NAME: request.sampling.grammar is not None}
    return frozenset(name for name, there in has.items() if not there)
