"""What moving layers to devices does to a model's passes, measured at both ends."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import accumulate

from localspec.backends.base import Target
from localspec.control import CostCurve
from localspec.control.measure import ROWS
from localspec.engine import Engine
from localspec.plan import Part
from localspec.tools.tune.costs import Costs


@dataclass(frozen=True, slots=True)
class Timed:
    """A model's costs; with ``part`` where some of its layers fit on devices, whose costs are then those of none."""

    costs: Costs
    part: Part | None = None

    def at(self, moved: int, most_rows: int) -> Costs:
        """The costs with so many layers on devices."""
        if self.part is None:
            return self.costs
        points = {rows: self.part.seconds(rows, moved) for rows in ROWS if rows <= most_rows}
        return replace(self.costs, curve=CostCurve(points))


def timed(
    load: Callable[[int | None], AbstractContextManager[Engine]],
    cost: Callable[[Target, bool], Costs],
    sizes: tuple[int, ...],
    room: int,
) -> Timed:
    """Times a model: as it is loaded where there is no ``room`` on devices; else without layers there, and with as many
    as fit.

    Args:
        load: layers on devices (``None``: as given) → the model alone.
        cost: a model, and whether its threads are in question → its costs.
        sizes: bytes by layer, in the order in which they are moved.
        room: bytes of devices that may be filled.

    Raises:
        LocalspecError: as ``load`` and ``cost``.
    """
    with load(0 if room else None) as engine:
        costs = cost(engine.target, True)
        moved = bisect_right([*accumulate(sizes)], room)
    if not moved:
        return Timed(costs)
    with load(moved) as engine:
        some = cost(engine.target, False)
    return Timed(costs, Part.measured(sizes, costs.curve.seconds, some.curve.seconds, moved))
