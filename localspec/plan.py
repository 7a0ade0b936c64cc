"""Where layers of a target and its draft model should lie, by the tokens a second that are to be expected.

Pure: times and sizes are measured by others. Between a model on the CPU and the same model on devices time and memory
are straight lines in the number of layers moved, which is what layers of equal size make of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

#: How often a guess of a draft model holds, where nothing is known yet: what is usual within a family.
ALPHA = 0.7
#: How many times smaller than its target a draft model should be, as a rule of thumb; below ``TOO_LARGE`` times its
#: passes cost much of what guesses save, above ``TOO_SMALL`` it may seldom guess right.
USUAL = (10, 20)
TOO_LARGE, TOO_SMALL = 5, 50
#: Guesses on a path at most.
MOST_GUESSES = 16

#: Rows → seconds of a pass.
Seconds = Callable[[int], float]


@dataclass(frozen=True, slots=True)
class Part:
    """One model. ``layers`` as ``-ngl`` counts them; ``size``: bytes of weights and cache; ``cpu`` and ``device``: what
    passes take with no layer, and with all of them, on devices."""

    layers: int
    size: int
    cpu: Seconds
    device: Seconds

    @classmethod
    def measured(cls, layers: int, size: int, cpu: Seconds, some: Seconds, moved: int) -> Part:
        """From passes without layers on devices, and with ``moved`` of them there, as many as fit."""

        def device(rows: int) -> float:
            return max(cpu(rows) + (some(rows) - cpu(rows)) * layers / moved, 0.0)

        return cls(layers, size, cpu, device)

    def seconds(self, rows: int, moved: int) -> float:
        """Of a pass with so many layers on devices."""
        share = moved / self.layers
        return self.cpu(rows) * (1 - share) + self.device(rows) * share

    def bytes(self, moved: int) -> int:
        """Of devices that so many layers take."""
        return -(-self.size * moved // self.layers)

    def fits(self, room: int) -> int:
        """How many layers so many bytes have room for."""
        return min(self.layers, self.layers * room // max(self.size, 1))


@dataclass(frozen=True, slots=True)
class Split:
    """Layers of target and draft model on devices; at so many guesses a step it is the fastest, with ``speed`` tokens a
    second."""

    target: int
    draft: int
    guesses: int
    speed: float


def speed(target: Part, draft: Part | None, moved: tuple[int, int], guesses: int, alpha: float = ALPHA) -> float:
    """Expected tokens a second with chains of ``guesses``: 1 + α + … + α^n tokens (Leviathan et al., arXiv 2211.17192,
    eq. 1) for a pass of n + 1 rows and n passes of the draft model. 0 guesses are plain decoding."""
    tokens = sum(alpha**depth for depth in range(guesses + 1))
    seconds = target.seconds(guesses + 1, moved[0])
    if draft is not None:
        seconds += guesses * draft.seconds(1, moved[1])
    return tokens / max(seconds, 1e-9)


def best_split(target: Part, draft: Part | None, room: int, *, alpha: float = ALPHA) -> Split:
    """The fastest way to use ``room`` bytes of devices; of equals the one with most layers there. Without a draft model
    nothing is guessed: drafters without one guess alike wherever the layers are."""
    drafts = range(draft.layers + 1) if draft is not None else (0,)
    depths = range(MOST_GUESSES + 1) if draft is not None else (0,)
    fitting = (
        (mine, others)
        for mine, others in product(range(target.layers + 1), drafts)
        if target.bytes(mine) + (0 if draft is None else draft.bytes(others)) <= room
    )
    return max(
        (
            Split(*moved, guesses, speed(target, draft, moved, guesses, alpha))
            for moved in fitting
            for guesses in depths
        ),
        key=lambda one: (one.speed, one.target, one.draft),
    )


@dataclass(frozen=True, slots=True)
class Plan:
    """The best split, and the one that is made without a plan: the target takes what it can, the draft model the rest.
    ``whole``: with the best one, all of both models is on devices."""

    best: Split
    usual: Split
    whole: bool

    @classmethod
    def of(cls, target: Part, draft: Part | None, room: int, *, alpha: float = ALPHA) -> Plan:
        """As `best_split`."""
        best = best_split(target, draft, room, alpha=alpha)
        whole = best.target == target.layers and (draft is None or best.draft == draft.layers)
        return cls(best, target_first(target, draft, room, alpha=alpha), whole)


def target_first(target: Part, draft: Part | None, room: int, *, alpha: float = ALPHA) -> Split:
    """What is done without a plan, to compare with: the target takes what it can, the draft model the rest."""
    mine = target.fits(room)
    others = 0 if draft is None else draft.fits(room - target.bytes(mine))
    depths = range(MOST_GUESSES + 1) if draft is not None else (0,)
    made = (Split(mine, others, n, speed(target, draft, (mine, others), n, alpha)) for n in depths)
    return max(made, key=lambda one: one.speed)
