"""Hard limits of load beyond which nothing is guessed, whatever it would bring.

What pays is found out by measuring (`AutoController`): the more sequences compete for the rows of a pass, the fewer
guesses do. These limits stand beside that, for those who know theirs, and for a queue so long that every row counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

_BACK = 0.75  # share of a limit under which guessing begins again: at its edge it would flutter


@dataclass(slots=True)
class Limit:
    """``most`` of something; 0: no limit. Once it was passed, it stays so until there is a quarter less."""

    most: int
    passed: bool = False

    def look(self, n: int) -> bool:
        """Takes in how many there are now; whether that is too many."""
        back = max(math.ceil(_BACK * self.most), 1)
        self.passed = self.most > 0 and n > (back if self.passed else self.most)
        return self.passed


@dataclass(slots=True)
class LoadGuard:
    """Whether guessing is allowed under the load of the moment.

    Args:
        most_running: answers at a time; 0: no limit.
        most_waiting: requests that wait; 0: no limit.
    """

    most_running: int = 0
    most_waiting: int = 0
    _limits: tuple[Limit, Limit] = field(init=False)

    def __post_init__(self) -> None:
        self._limits = Limit(self.most_running), Limit(self.most_waiting)

    def look(self, running: int, waiting: int) -> None:
        """Before each step."""
        for limit, n in zip(self._limits, (running, waiting), strict=True):
            limit.look(n)

    @property
    def allows(self) -> bool:
        return not any(limit.passed for limit in self._limits)

    @property
    def why(self) -> str:
        """Why nothing is guessed; nothing where it is allowed."""
        running, waiting = self._limits
        if running.passed:
            return f"more than {running.most} answers run at a time (--spec-max-concurrency)"
        return f"more than {waiting.most} requests wait (--spec-max-queue)" if waiting.passed else ""
