"""What one option is: its spellings, its type and its bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from localspec.errors import UsageError


@dataclass(frozen=True, slots=True)
class Option:
    """One option. ``flags`` starts with those shown; ``aliases`` work too. ``least``/``most`` bound numbers,
    ``choices`` texts; a default of ``None`` means "not given"."""

    name: str
    flags: tuple[str, ...]
    kind: type
    default: Any
    help: str
    group: str
    metavar: str = ""
    aliases: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    many: bool = False

    def check(self, value: Any) -> None:
        """Raises `UsageError` naming the flag if ``value`` is out of bounds, or text of bytes that are not UTF-8."""
        if value is None:
            return
        for one in value if self.many else (value,):
            if self.kind is str and self.metavar != "FILE":  # names of files may be any bytes
                self._check_text(one)
            if self.choices and one not in self.choices:
                raise UsageError(
                    f"{self.flags[-1]} {one} is not possible", hint=f"Use one of {', '.join(self.choices)}."
                )
            if self.kind in (int, float):
                self._check_number(one)

    def _check_text(self, text: str) -> None:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UsageError(f"the text of {self.flags[-1]} is not UTF-8", hint="Convert it first.") from None

    def _check_number(self, number: float) -> None:
        low = self.least is not None and not number >= self.least
        high = self.most is not None and not number <= self.most
        if not (low or high or not math.isfinite(number)):
            return
        if self.least is None:
            bounds = "a finite number"
        else:
            bounds = f"at least {self.least}" if self.most is None else f"{self.least} to {self.most}"
        raise UsageError(f"{self.flags[-1]} {number} is out of range", hint=f"It takes {bounds}.")
