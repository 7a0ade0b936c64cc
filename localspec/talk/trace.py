"""What happened in one answer, step by step: to watch it while it comes, and to look at it afterwards."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from localspec.report import finite, step_record
from localspec.stats import StatsBook
from localspec.types import (
    Event,
    Finished,
    Notice,
    Paced,
    SpecStats,
    Standing,
    Started,
    StepStats,
    TokenInfo,
    Tokens,
    TreeTrace,
)

#: Trees that are kept, of the last steps that had one: about 3 kB each. All else is kept of every step.
TREES = 256


@dataclass(frozen=True, slots=True)
class Step:
    """One verify step.

    ``number`` counts from 1, ``at`` is the place of its first token in the answer, ``stats`` are without the tree.
    ``joined``: a reader that was far behind got so many steps as one; ``number`` is then the first one's.
    """

    number: int
    at: int
    stats: StepStats
    joined: int = 1


@dataclass(frozen=True, slots=True)
class Remark:
    """How a drafter stands from step ``after`` on (0: from the start)."""

    after: int
    standing: Standing


@dataclass(frozen=True, slots=True)
class Refused:
    """A guess that was verified and not drawn; ``target_p`` is ``None`` where nobody told it."""

    token: int
    piece: bytes
    source: str
    draft_p: float
    target_p: float | None


class AnswerTrace:
    """Grows by the events of one answer.

    Args:
        trees: so many trees are kept.
    """

    def __init__(self, trees: int = TREES) -> None:
        self.started: Started | None = None
        self.finished: Finished | None = None
        self.tokens: list[TokenInfo] = []
        self.steps: list[Step] = []
        self.remarks: list[Remark] = []
        #: Who guessed, in order of the first guess.
        self.drafters: list[str] = []
        #: Places where guesses were refused.
        self.refusals = 0
        #: The last step that had guesses.
        self.last_draft: Step | None = None
        self._book = StatsBook()
        self._trees: dict[int, TreeTrace] = {}
        self._refused: dict[int, tuple[Refused, ...]] = {}  # by place of what the target drew itself
        self._most_trees = trees
        self._emitted = self._count = 0
        self._steps_when_paced: int | None = None
        # Sums up to each step, so that any stretch of the answer costs two look-ups.
        self._drafted, self._accepted = [0], [0]

    def hear(self, event: Event) -> None:
        """The next event; those that say nothing about steps change nothing."""
        match event:
            case Started():
                self.started = event
            case Tokens():
                self.tokens += event.tokens
                self._meet(token.source for token in event.tokens)
                if event.step is not None:
                    self._add(event.step)
            case Paced():
                self._steps_when_paced = len(self.steps)
            case Notice(about=Standing() as standing):
                self.remarks.append(Remark(self._count, standing))
            case Finished():
                self.finished = event

    def _meet(self, names: Iterable[str]) -> None:
        self.drafters += dict.fromkeys(name for name in names if name and name not in self.drafters)

    def _add(self, stats: StepStats) -> None:
        # Every step emits or cuts off what it accepted and one more; so the sums of several tell how many they were.
        joined = stats.emitted + stats.cut - stats.accepted
        step = Step(self._count + 1, self._emitted, replace(stats, tree=None), joined)
        self.steps.append(step)
        self._count += joined
        self._emitted += stats.emitted
        self._drafted.append(self._drafted[-1] + stats.draft_n)
        self._accepted.append(self._accepted[-1] + stats.accepted)
        if stats.draft_n:
            self.last_draft = step
            if stats.tree is not None:
                self._keep(step.number, stats.tree)
                if not stats.cut:  # what the target drew came out: it is the step's last token
                    refused = _refused(stats.tree)
                    self._refused[self._emitted - 1] = refused
                    self.refusals += bool(refused)
        if joined == 1:
            self._book.add(stats, *_sources(stats.tree))

    def _keep(self, number: int, tree: TreeTrace) -> None:
        self._meet(tree.sources)
        self._trees[number] = tree
        if len(self._trees) > self._most_trees:
            del self._trees[next(iter(self._trees))]

    # -- what it tells

    @property
    def stats(self) -> SpecStats:
        """Totals so far; the engine's own once the answer is over. Until then joined steps are missing, since nobody
        knows what each of them brought, and ``by_source`` is empty if the request asked for no trace."""
        return self._book.snapshot() if self.finished is None else self.finished.stats

    @property
    def paced(self) -> bool:
        """Whether the newest step was granted by itself, or the first is waited for."""
        return self._steps_when_paced is not None and len(self.steps) <= self._steps_when_paced + 1

    @property
    def saved(self) -> float | None:
        """Seconds that plain decoding would have taken longer, as measured; negative where guesses cost time, ``None``
        where nobody measured."""
        stats = self.stats
        return None if stats.speedup is None else stats.t_plain - stats.t_judged

    @property
    def times(self) -> dict[str, float]:
        """Seconds of drafting, verifying and all the rest."""
        stats = self.stats
        return {"draft": stats.t_draft, "verify": stats.t_verify, "host": stats.t_host}

    def acceptance(self, points: int) -> list[float | None]:
        """Accepted / drafted-and-verified over time: at most ``points`` stretches of equally many steps (the last one
        may be shorter), ``None`` for one in which nothing was drafted. A stretch is 1, 2, 4, … steps long, so that
        those that are complete change only when all of them are put together in pairs."""
        count, size = len(self.steps), 1
        if points < 1:
            return []
        while size * points < count:
            size *= 2
        return [self._rate(start, min(start + size, count)) for start in range(0, count, size)]

    def _rate(self, start: int, stop: int) -> float | None:
        drafted = self._drafted[stop] - self._drafted[start]
        return (self._accepted[stop] - self._accepted[start]) / drafted if drafted else None

    def tree(self, step: Step) -> TreeTrace | None:
        """What was verified in a step; of joined steps, the last tree. ``None`` where nothing was drafted, no trace was
        asked for, or newer trees took its place."""
        return self._trees.get(step.number)

    def refused(self, place: int) -> tuple[Refused, ...] | None:
        """What was guessed in place of a token that the target drew itself, the likeliest first; ``None``: not known,
        since no trace was asked for, or several steps came as one."""
        at = bisect_right(self.steps, place, key=lambda step: step.at) - 1
        drafted = at >= 0 and self.steps[at].stats.draft_n > 0
        return self._refused.get(place, None if drafted else ())

    @property
    def traced(self) -> bool:
        """Whether any step came with its tree."""
        return bool(self._trees)

    def tokens_of(self, step: Step) -> list[TokenInfo]:
        """What a step emitted, as far as it is here: tokens are held back while they may belong to a stop string."""
        return self.tokens[step.at : step.at + max(step.stats.emitted, 0)]

    def drawn(self, step: Step) -> TokenInfo | None:
        """What the target drew at the end of a step's path; ``None`` if it is not here, or the step is a joint one."""
        tokens = self.tokens_of(step)
        return tokens[step.stats.accepted] if step.joined == 1 and step.stats.accepted < len(tokens) else None

    def records(self) -> Iterator[dict[str, Any]]:
        """One JSON object for each step, in order. ``drafters`` is what was said of drafters after it and before the
        next one; the first has what was said before it, too."""
        for step in self.steps:
            stop = step.number + step.joined
            first = 0 if step is self.steps[0] else step.number
            said = [remark.standing for remark in self.remarks if first <= remark.after < stop]
            yield finite(
                {
                    "step": step.number,
                    "steps": step.joined,
                    "at": step.at,
                    **step_record(step.stats, self.tokens_of(step), self.tree(step)),
                    "drafters": [{"name": one.drafter, "state": one.state, "why": one.why} for one in said],
                }
            )


def _refused(tree: TreeTrace) -> tuple[Refused, ...]:
    """Guesses that would have followed the last one that held."""
    end = tree.path[-1] if tree.path else 0
    nodes = [node for node, parent in enumerate(tree.parents) if node and parent == end]
    return tuple(
        Refused(
            tree.tokens[node],
            tree.pieces[node] if tree.pieces else b"",
            tree.sources[node],
            tree.scores[node],
            tree.target_p[node] if tree.target_p else None,
        )
        for node in sorted(nodes, key=lambda node: -tree.scores[node])
    )


def _sources(tree: TreeTrace | None) -> tuple[Sequence[str], Sequence[str]]:
    """Who guessed the nodes of a tree, and those that held."""
    return ((), ()) if tree is None else (tree.sources[1:], [tree.sources[node] for node in tree.path])
