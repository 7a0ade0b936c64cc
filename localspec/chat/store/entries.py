"""What is kept: sessions, and what was said in them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from localspec.chat.conversation import Turn

#: Characters of a title that is made of the first question.
TITLE = 60


@dataclass(frozen=True, slots=True)
class Session:
    """A conversation with all its branches, without what was said.

    Times are UTC in ISO 8601. ``leaf`` is the last message of the branch that is gone on with, ``None`` before the
    first. ``settings`` are options by their words, as they are saved with a transcript. ``draft`` is text that was
    typed and not sent. ``deleted`` says since when it waits to be purged. ``questions`` counts those of all branches.
    """

    id: str
    title: str = ""
    created: str = ""
    updated: str = ""
    pinned: bool = False
    deleted: str | None = None
    system: str | None = None
    leaf: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    draft: str = ""
    questions: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """A message in its place: ``parent`` is what it follows, ``None`` at the beginning. ``params`` are what an answer
    was made with, ``stats`` how it went; both hold what JSON can."""

    id: str
    parent: str | None
    turn: Turn
    created: str
    params: Mapping[str, Any] = field(default_factory=dict)
    stats: Mapping[str, Any] = field(default_factory=dict)

    @property
    def role(self) -> str:
        return self.turn.message.role

    @property
    def content(self) -> str:
        return self.turn.message.content


@dataclass(frozen=True, slots=True)
class Snippet:
    """A part of a text; ``marks`` are the places in it, as (start, end), that were looked for."""

    text: str
    marks: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Hit:
    """Where a search found something: a message of a session, or its title (``entry`` is ``None``)."""

    session: Session
    entry: str | None
    snippet: Snippet


def new_id() -> str:
    """16 hexadecimal digits that nobody else has: whoever writes something names it, written or not."""
    return secrets.token_hex(8)


def now() -> str:
    return timestamp(datetime.now(UTC))


def timestamp(moment: datetime) -> str:
    """UTC in ISO 8601, to the microsecond, so that texts sort as the times do."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def title_of(question: str) -> str:
    """What a session is called that begins with this question."""
    line = next((words for line in question.splitlines() if (words := " ".join(line.split()))), "")
    return line if len(line) <= TITLE else f"{line[: TITLE - 1].rstrip()}…"
