"""Where a value came from, and how a message names it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import IntEnum
from typing import Any


class Level(IntEnum):
    """Sources in order of rank: a higher one wins."""

    DEFAULT = 0
    TUNED = 1
    SYSTEM_FILE = 2
    USER_FILE = 3
    SYSTEM_PROFILE = 4
    USER_PROFILE = 5
    ENV = 6
    CLI = 7


@dataclass(frozen=True, slots=True)
class Origin:
    """``name`` is the environment variable, the file, or the flag of another option that implies this one; ``key`` how
    the file spells the option."""

    level: Level
    name: str = ""
    key: str = ""
    profile: str = ""

    def cite(self, flag: str, value: Any) -> str:
        """The setting as the user wrote it, for a message."""
        if self.level is Level.ENV:
            return f"{self.name}={value}"
        if self.is_file:
            return f"{self.key} = {json.dumps(value, ensure_ascii=False, default=str)} in {self.place}"
        return f"{flag} {value}"

    def site(self, flag: str) -> str:
        """The same without the value."""
        if self.level is Level.ENV:
            return self.name
        return f"{self.key} in {self.place}" if self.is_file else flag

    @property
    def is_file(self) -> bool:
        return Level.SYSTEM_FILE <= self.level <= Level.USER_PROFILE

    @property
    def place(self) -> str:
        return f"{self.name} [profile.{self.profile}]" if self.profile else self.name

    def __str__(self) -> str:
        if self.level is Level.ENV:
            return f"env {self.name}"
        if self.is_file:
            return f"file {self.place}"
        return self.name or self.level.name.lower()


DEFAULT = Origin(Level.DEFAULT)
TUNED = Origin(Level.TUNED)
CLI = Origin(Level.CLI)
