"""What guesses ahead, and how each drafter stands: in use, on trial, or left alone and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from localspec.drafters.files import FROM_FILE
from localspec.types import EngineInfo, Notice, SpecMode, SpecStats, Standing


def guessers(info: EngineInfo, chosen: Sequence[str] | None = None) -> str:
    """The drafters in words, draft models and heads with their file."""
    names = info.drafters if chosen is None else chosen
    unknown = "nothing" if info.server is None else "whatever the server has"
    return ", ".join(_with_file(name, info.draft) for name in names) or unknown


def _with_file(name: str, draft: str | None) -> str:
    return f"{name} ({Path(draft).name})" if name in FROM_FILE and draft else name


class Remarks:
    """What the engine last said of each drafter."""

    def __init__(self) -> None:
        self._said: dict[str, Standing] = {}

    def hear(self, notice: Notice) -> None:
        """A notice, which may be about none of them."""
        if notice.about is not None:
            self._said[notice.about.drafter] = notice.about

    def clear(self) -> None:
        self._said.clear()

    def alone(self, drafters: Iterable[str], mode: SpecMode) -> dict[str, str]:
        """Those that are not asked, and why. One that does not pay is asked all the same where nobody decides."""
        states = ("paused",) if mode == "fixed" else ("left alone", "paused")
        said = [self._said[name] for name in drafters if name in self._said]
        return {one.drafter: f"{one.state}: {one.why}" for one in said if one.state in states}


def standings(
    drafters: Iterable[str], alone: Mapping[str, str], mode: SpecMode, last: SpecStats, session: SpecStats
) -> list[tuple[str, str]]:
    """A drafter and how it stands, each.

    Args:
        alone: `Remarks.alone`.
        last: of the last answer.
        session: of all answers.
    """
    rows = []
    for name in drafters:
        guessed = _guessed(name, last)
        if name in alone:
            text = alone[name] + (f"; tried in the last answer: {guessed}" if guessed else "")
        elif guessed:
            text = f"in use: in the last answer {guessed}"
        elif mode == "auto" and not _guessed(name, session):
            text = "on trial: no guess of it was tested yet"
        else:
            text = "in use: no guess in the last answer"
        rows.append((name, text))
    return rows


def _guessed(name: str, stats: SpecStats) -> str:
    """How its guesses fared; nothing if there were none."""
    for one in stats.by_source:
        if one.name == name and one.draft_n:
            return f"{one.accepted} of {one.draft_n} guesses held"
    return ""
