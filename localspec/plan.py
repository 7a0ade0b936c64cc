"""Where layers of a target and its draft model should lie, by the tokens a second that are to be expected.

Pure: times and sizes are measured by others. Between a model on the CPU and the same model on devices time and memory
are straight lines in the bytes of the layers that are moved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    """One model. ``sizes``: bytes of weights and cache of its layers, counted and moved as by ``-ngl``, the output
    layer first; ``cpu`` and ``device``: what passes take with no layer, and with all of them, on devices; ``on``: which
    devices it may use, in this order; ``fixed``: how many layers have to lie there."""

    sizes: tuple[int, ...]
    cpu: Seconds
    device: Seconds
    on: tuple[int, ...] = (0,)
    fixed: int | None = None

    @classmethod
    def measured(cls, sizes: tuple[int, ...], cpu: Seconds, some: Seconds, moved: int) -> Part:
        """From passes without layers on devices, and with ``moved`` of them there, as many as fit."""
        whole = sum(sizes) / sum(sizes[:moved])

        def device(rows: int) -> float:
            return max(cpu(rows) + (some(rows) - cpu(rows)) * whole, 0.0)

        return cls(sizes, cpu, device)

    @property
    def layers(self) -> int:
        return len(self.sizes)

    @property
    def choices(self) -> range:
        """How many layers may be moved."""
        return range(self.layers + 1) if self.fixed is None else range(self.fixed, self.fixed + 1)

    def seconds(self, rows: int, moved: int) -> float:
        """Of a pass with so many layers on devices."""
        share = self.bytes(moved) / max(sum(self.sizes), 1)
        return self.cpu(rows) * (1 - share) + self.device(rows) * share

    def bytes(self, moved: int) -> int:
        """Of devices that so many layers take."""
        return sum(self.sizes[:moved])


#: Bytes of each device that may be filled.
Rooms = Sequence[int]


def placed(models: Sequence[tuple[Part, int]], rooms: Rooms) -> tuple[tuple[int, ...], ...] | None:
    """By model, how many of its moved layers each of its devices takes, one device being filled after the other, and
    one model after the other; ``None``: not all of them find room. A device gets layers that follow each other, the
    last device the last ones, as llama.cpp shares them out."""
    left, found = list(rooms), []
    for part, moved in models:
        counts, at = [0] * len(part.on), 0
        for size in reversed(part.sizes[:moved]):
            while at < len(part.on) and left[part.on[at]] < size:
                at += 1
            if at == len(part.on):
                return None
            left[part.on[at]] -= size
            counts[at] += 1
        found.append(tuple(counts))
    return tuple(found)


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


def best_split(target: Part, draft: Part | None, rooms: Rooms, *, alpha: float = ALPHA) -> Split:
    """The fastest way to use the ``rooms`` of devices; of equals the one with most layers there. Without a draft model
    nothing is guessed: drafters without one guess alike wherever the layers are.

    Raises:
        ValueError: layers that have to lie on devices find no room.
    """
    return max(
        (
            split_of(target, draft, moved, alpha)
            for moved in product(target.choices, (0,) if draft is None else draft.choices)
            if _fits(target, draft, moved, rooms)
        ),
        key=lambda one: (one.speed, one.target, one.draft),
    )


def _fits(target: Part, draft: Part | None, moved: tuple[int, int], rooms: Rooms) -> bool:
    models = [(target, moved[0]), *([] if draft is None else [(draft, moved[1])])]
    return placed(models, rooms) is not None


def split_of(target: Part, draft: Part | None, moved: tuple[int, int], alpha: float = ALPHA) -> Split:
    """So many layers of each moved, with the number of guesses that is best for that."""
    depths = range(MOST_GUESSES + 1) if draft is not None else (0,)
    return max(
        (Split(*moved, guesses, speed(target, draft, moved, guesses, alpha)) for guesses in depths),
        key=lambda one: one.speed,
    )


@dataclass(frozen=True, slots=True)
class Plan:
    """The best split, and the one that is made without a plan: the target takes what it can, the draft model the rest.
    ``whole``: with the best one, all of both models is on devices."""

    best: Split
    usual: Split
    whole: bool

    @classmethod
    def of(cls, target: Part, draft: Part | None, rooms: Rooms, *, alpha: float = ALPHA) -> Plan:
        """As `best_split`."""
        best = best_split(target, draft, rooms, alpha=alpha)
        whole = best.target == target.layers and (draft is None or best.draft == draft.layers)
        return cls(best, target_first(target, draft, rooms, alpha=alpha), whole)


def target_first(target: Part, draft: Part | None, rooms: Rooms, *, alpha: float = ALPHA) -> Split:
    """What is done without a plan, to compare with: the target takes what it can, the draft model the rest. Raises as
    `best_split`."""
    pairs = product(target.choices, (0,) if draft is None else draft.choices)
    return split_of(target, draft, max(moved for moved in pairs if _fits(target, draft, moved, rooms)), alpha)
