"""Who may guess, how much, and which guesses are verified.

The engine asks before a step what guesses are worth (``plan``), hands over what the drafters came up with
(``choose``), and tells afterwards what happened (``observe``). A controller reads no clock: it is told every time it
needs, so that it can be run on recorded traces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from localspec.control.price import Limits, Price
from localspec.control.threads import ThreadTuner
from localspec.spec.tree import TokenTree
from localspec.types import SpecParams, Standing


@dataclass(frozen=True, slots=True)
class Wish:
    """One sequence before a step: what its request allows, what cache, context, batch and token limit leave, and the
    drafters that can be asked, each with the number of committed tokens it has yet to read. Those in ``costly`` spend
    passes of a model on their guesses. ``left``: tokens that its answer may still take; ``None``: no limit was set."""

    seq: int
    spec: SpecParams
    room: Limits
    n_past: int
    drafters: Mapping[str, int]
    costly: frozenset[str] = frozenset()
    left: int | None = None

    @property
    def limits(self) -> Limits:
        """What the request allows, within the room."""
        spec = self.spec
        return Limits(spec.depth, spec.nodes, spec.width, spec.p_min).within(self.room)


@dataclass(frozen=True, slots=True)
class PassRecord:
    """One verify pass: rows of all sequences, cells in use, seconds of wall and CPU time, seconds of each drafter that
    was asked, and of the whole step. ``beside``: rows of prompts that the pass read, too; its times are theirs as
    well."""

    rows: int
    cells: int
    wall_s: float
    cpu_s: float
    draft_s: Mapping[str, float]
    step_s: float = 0.0
    beside: int = 0


@dataclass(frozen=True, slots=True)
class Walk:
    """What became of one sequence's guesses: the trees as proposed, the one that was verified, and the tokens that the
    walk decided. Every proposal can be judged along them, whether its guesses were verified or not."""

    seq: int
    proposals: Mapping[str, TokenTree]
    verified: TokenTree
    tokens: tuple[int, ...]


class Controller(Protocol):
    """Decides how much is guessed."""

    @property
    def threads(self) -> int | None:
        """Threads for the next passes; ``None`` leaves them alone."""
        ...

    def plan(self, wishes: Sequence[Wish], beside: int = 0) -> list[Mapping[str, Price]]:
        """For each sequence the price for each drafter that is to be asked; none = a plain step. ``beside``: rows of
        prompts that the pass is going to read, too."""
        ...

    def choose(self, wishes: Sequence[Wish], proposals: Sequence[Mapping[str, TokenTree]]) -> list[TokenTree]:
        """The tree to verify for each sequence that has proposals (at least one each), within its limits."""
        ...

    def observe(self, record: PassRecord, walks: Sequence[Walk]) -> None:
        """A step is over."""
        ...

    def forget(self, seq: int) -> None:
        """A sequence is no more."""
        ...

    @property
    def plain_s(self) -> float | None:
        """Seconds that a token takes without guesses, as measured; ``None``: nobody measures."""
        ...

    def notices(self) -> list[tuple[int, Standing]]:
        """What the user should hear since the last call, by sequence."""
        ...


class FixedController:
    """Every drafter may use all that the request allows; what they guess is merged and the likeliest is kept.

    Args:
        tuner: picks the thread count; ``None`` leaves it alone.
    """

    def __init__(self, tuner: ThreadTuner | None = None) -> None:
        self._tuner = tuner

    @property
    def threads(self) -> int | None:
        return self._tuner.threads if self._tuner is not None else None

    def plan(self, wishes: Sequence[Wish], beside: int = 0) -> list[Mapping[str, Price]]:
        return [all_may(wish) for wish in wishes]

    def choose(self, wishes: Sequence[Wish], proposals: Sequence[Mapping[str, TokenTree]]) -> list[TokenTree]:
        return [merged(wish.limits, list(trees.values())) for wish, trees in zip(wishes, proposals, strict=True)]

    def observe(self, record: PassRecord, walks: Sequence[Walk]) -> None:
        if self._tuner is not None:
            self._tuner.observe(record.rows + record.beside, record.wall_s, record.cpu_s)

    def forget(self, seq: int) -> None:
        pass

    @property
    def plain_s(self) -> float | None:
        return None

    def notices(self) -> list[tuple[int, Standing]]:
        return []


def all_may(wish: Wish) -> Mapping[str, Price]:
    """Every drafter may use all that the request allows."""
    limits = wish.limits
    return {} if limits.none or wish.spec.mode == "off" else dict.fromkeys(wish.drafters, Price(limits))


def merged(limits: Limits, trees: Sequence[TokenTree]) -> TokenTree:
    """The likeliest guesses of all ``trees`` (at least one) within the limits, which each of them keeps to."""
    if len(trees) == 1:
        return trees[0]
    together = trees[0]
    for tree in trees[1:]:
        together = together.merge(tree)
    return limits.fit(together)
