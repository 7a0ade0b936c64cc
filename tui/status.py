"""The status line: what runs, how fast, how well guesses hold, how full the context is. Only measured numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from textual.timer import Timer
from textual.widgets import Static

from localspec.hub.sizes import human
from localspec.report import speed
from localspec.stats import StatsBook
from localspec.talk.standing import guessers
from localspec.talk.turn import Asked, TurnEvent
from localspec.tui.turns import harmless
from localspec.types import EngineInfo, Failed, Finished, SpecStats, Started, Tokens

#: Seconds between two drawings while an answer comes: nobody reads numbers faster.
INTERVAL = 0.5
UNKNOWN = "n/a"
GAUGE = 8  # cells
LONGEST_NAME = 28


@dataclass(frozen=True, slots=True)
class Status:
    """What the line is made of.

    Attributes:
        doing: what the engine is at; nothing while it rests.
        share: how much of that is done, where known.
        used: tokens of the context that the last prompt and its answer take.
        memory: bytes that the engine holds.
        guesses: whether anything may be guessed ahead.
        last: the newest answer that was finished.
        live: of the answer that comes.
    """

    info: EngineInfo | None = None
    doing: str = ""
    share: float | None = None
    used: int | None = None
    memory: int | None = None
    guesses: bool = True
    last: Finished | None = None
    live: SpecStats | None = None

    def heard(self, event: object) -> Status:
        """After an event of a turn."""
        match event:
            case Started(prompt_n=n):
                return replace(self, used=n)
            case Tokens(tokens=tokens):
                return replace(self, used=(self.used or 0) + len(tokens))
            case Finished(timings=clock, ids=ids):
                used = self.used if ids else clock.prompt_n + clock.predicted_n  # a server tells at the end alone
                return replace(self, used=used, last=event, live=None)
            case Failed():
                return replace(self, live=None)
        return self

    def now(self, doing: str, share: float | None, *, guesses: bool) -> Status:
        """While the engine is at something else, or rests."""
        return replace(self, doing=doing, share=share, guesses=guesses)

    def running(self, info: EngineInfo | None) -> Status:
        """With another engine, or none; numbers of the old one are void."""
        return replace(self, info=info, used=None, memory=None, last=None, live=None)

    def parts(self) -> list[str]:
        """The most important first: a narrow screen leaves out what does not fit."""
        doing = self.doing + (f" {100 * self.share:.0f} %" if self.share is not None else "")
        if self.info is None:
            return [doing or "no model: F5 loads it, F7 another"]
        return [doing or "ready", *self._numbers(), *self._held(), *self._names(self.info)]

    def _numbers(self) -> list[str]:
        stats, rate = self._measured()
        if stats is None and self.used is None:
            return [] if self.guesses else ["speculation off"]
        parts = [UNKNOWN + " tok/s" if rate is None else speed(rate), self._context()]
        if not self.guesses:
            return [*parts, "speculation off"]
        speedup = None if stats is None else stats.speedup
        acceptance = None if stats is None else stats.acceptance
        length = None if stats is None else stats.mean_length
        return [
            *parts,
            *([] if speedup is None else [f"speed-up {speedup:.2f}×"]),  # many answers end before it is measured
            f"accepted {UNKNOWN if acceptance is None else f'{100 * acceptance:.0f} %'}",
            f"length {UNKNOWN if length is None else f'{length:.1f}'}",
        ]

    def _measured(self) -> tuple[SpecStats | None, float | None]:
        """Statistics and tokens per second: of the answer that comes, or else of the last."""
        if self.live is not None:
            seconds = self.live.t_draft + self.live.t_verify + self.live.t_host
            return self.live, self.live.emitted / seconds if seconds > 0 else None
        if self.last is not None:
            return self.last.stats, self.last.timings.tokens_per_second
        return None, None

    def _context(self) -> str:
        assert self.info is not None
        if self.used is None:
            return f"context {UNKNOWN}"
        filled = min(GAUGE, round(GAUGE * self.used / self.info.n_ctx))
        return f"context {'#' * filled}{'-' * (GAUGE - filled)} {self.used}/{self.info.n_ctx}"

    def _held(self) -> list[str]:
        return [] if self.memory is None else [f"memory {human(self.memory)}"]

    def _names(self, info: EngineInfo) -> list[str]:
        if info.server is not None:
            return [_short(info.target), info.server]
        return [_short(Path(info.target).name), f"guesses from {_short(guessers(info))}"]

    def line(self, width: int) -> str:
        """What fits in ``width`` columns."""
        parts = self.parts()
        shown = parts[0]
        for part in parts[1:]:
            if len(shown) + len(part) + 3 <= width:
                shown += f" · {part}"
        return harmless(shown)[:width]


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


class StatusLine(Static):
    """One line."""

    def __init__(self) -> None:
        super().__init__(id="status", markup=False)
        self.status = Status()
        self._drawn = ""
        self._drawing: Timer | None = None
        self._steps: StatsBook | None = None

    def hear(self, event: TurnEvent) -> None:
        """An event of a turn; what it changes is drawn soon, with what others change until then."""
        if isinstance(event, Asked):
            self._steps = None
        elif isinstance(event, Tokens) and event.step is not None:
            self._steps = self._steps or StatsBook()
            self._steps.add(event.step, (), ())
            self.status = replace(self.status, live=self._steps.snapshot())
        self.status = self.status.heard(event)
        if self._drawing is None and self.is_attached:
            self._drawing = self.set_timer(INTERVAL, self._draw)

    def show(self, status: Status) -> None:
        self.status = status
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        self._drawing = None
        line = self.status.line(max(self.size.width, 1))
        if line != self._drawn:
            self._drawn = line
            self.update(line, layout=False)
