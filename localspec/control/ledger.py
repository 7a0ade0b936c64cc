"""What speculation has won and lost lately."""

from __future__ import annotations

from collections import deque
from statistics import median_high
from typing import Literal

#: A step in which nobody was asked; one with no guess worth a row; one with guesses.
Kind = Literal["plain", "asked", "guessed"]

_SPAN = 256  # tokens looked back, of each sequence
_ALLOWANCE = 0.005  # share of plain time that trials may cost
_STAKE = 0.1  # and of what was won over it
_FEW = 3  # plain steps that say what one takes
_MOST_CAUTION = 1.5
_GRACE = 64  # tokens of a sequence at the start in which trials are free


class Ledger:
    """Seconds against those of plain decoding, over the last tokens."""

    def __init__(self) -> None:
        self._entries: deque[tuple[float, float, float, float]] = deque()
        self._tokens = 0.0  # of a sequence, as those below
        self._total = 0.0  # since the start
        self._spent = self._plain = self._reading = 0.0
        self._saved = 0.0  # seconds of plain decoding since the last trial
        self._plain_steps: dict[int, deque[float]] = {}  # by the sequences in them, over what was expected
        self._won = 0.0  # tokens a step with guesses, beyond those of plain steps in the same time; fading

    def add(
        self,
        tokens: int,
        seconds: float,
        plain: float,
        *,
        expected: float = 1.0,
        reading: float = 0.0,
        sharers: int = 1,
        kind: Kind = "guessed",
        settled: bool = True,
    ) -> None:
        """A step of ``sharers`` sequences that brought ``tokens`` took ``seconds``; without guesses they are believed
        to take ``plain``. ``expected``: seconds of a plain step, as far as is known. In ``reading`` of the
        seconds drafters read texts first. ``settled``: the step before was of its kind, so that it cost no change."""
        if kind == "plain" and settled:
            self._plain_steps.setdefault(sharers, deque(maxlen=9)).append(seconds / expected)
        each = tokens / sharers
        self._compare(each, seconds - reading, expected, sharers, kind)
        self._entries.append((each, seconds, plain, reading))
        self._total += each
        self._saved += plain
        self._count(each, seconds, plain, reading)
        while self._tokens - self._entries[0][0] >= _SPAN:
            n, spent, base, read = self._entries.popleft()
            self._count(-n, -spent, -base, -read)

    def _count(self, tokens: float, seconds: float, plain: float, reading: float) -> None:
        self._tokens += tokens
        self._spent += seconds
        self._plain += plain
        self._reading += reading

    def _compare(self, tokens: float, seconds: float, expected: float, sharers: int, kind: Kind) -> None:
        """Steps against steps: whatever the curve believes, this is what they took."""
        if kind != "guessed":
            self._won *= 0.98
        elif (step := self.plain_step(sharers, expected)) is not None:
            self._won += 0.1 * (max(tokens - seconds / step, -3.0) - self._won)

    def plain_step(self, sharers: int, expected: float) -> float | None:
        """Seconds of a plain step of ``sharers`` sequences, by the median of the last; ``None``: too few. They may have
        been taken in a shorter context, so what is kept is how they compared with what was ``expected`` of them."""
        return expected * median_high(self._plain_steps[sharers]) if self.knows_plain(sharers) else None

    def knows_plain(self, sharers: int) -> bool:
        """Whether enough plain steps of ``sharers`` sequences were taken."""
        return len(self._plain_steps.get(sharers, ())) >= _FEW

    @property
    def loss(self) -> float:
        """Share of the plain time that was lost over the span, but for texts that drafters read first; negative where
        time was saved."""
        return (self._spent - self._reading) / self._plain - 1 if self._plain > 0 else 0.0

    def affords(self, seconds: float) -> bool:
        """Whether a trial that costs so much keeps the losses within the allowance, of the span or of all the time
        since the last one, and leaves most of what was won."""
        won = self._plain - self._spent
        allowed = _ALLOWANCE * max(self._plain, self._saved)
        return self._total < _GRACE or seconds <= allowed + (_STAKE * won if won > 0 else won)

    def tries(self) -> None:
        """A trial begins."""
        self._saved = 0.0

    @property
    def caution(self) -> float:
        """Factor on costs of rows: after losses by them only clear gains are taken. Half as much again after a loss of
        2 %, and where the last steps with guesses were each a quarter of a token worse than plain ones; never so much
        that what is all but sure is not taken. A text that a drafter read for its trial is no fault of theirs."""
        if self._total < _GRACE:
            return 1.0
        return min(1.0 + 25 * max(self.loss - _ALLOWANCE / 2, 0.0) + 2 * max(-self._won, 0.0), _MOST_CAUTION)
