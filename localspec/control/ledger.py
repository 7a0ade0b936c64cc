"""What speculation has won and lost lately."""

from __future__ import annotations

from collections import deque

_SPAN = 256  # tokens looked back
_ALLOWANCE = 0.01  # share of plain time that trials may cost over the span
_GRACE = 64  # tokens at the start in which trials are free


class Ledger:
    """Seconds against those of plain decoding, over the last tokens."""

    def __init__(self) -> None:
        self._entries: deque[tuple[int, float, float]] = deque()
        self._tokens = 0
        self._total = 0  # tokens since the start
        self._spent = self._plain = 0.0

    def add(self, tokens: int, seconds: float, plain: float) -> None:
        """A step that brought ``tokens`` took ``seconds``; without guesses they take ``plain``."""
        self._entries.append((tokens, seconds, plain))
        self._total += tokens
        self._count(tokens, seconds, plain)
        while self._tokens - self._entries[0][0] >= _SPAN:
            n, spent, base = self._entries.popleft()
            self._count(-n, -spent, -base)

    def _count(self, tokens: int, seconds: float, plain: float) -> None:
        self._tokens += tokens
        self._spent += seconds
        self._plain += plain

    @property
    def loss(self) -> float:
        """Share of the plain time that was lost over the span; negative where time was saved."""
        return self._spent / self._plain - 1 if self._plain > 0 else 0.0

    def affords(self, seconds: float) -> bool:
        """Whether a trial that costs so much keeps the losses of the span within the allowance."""
        return self._total < _GRACE or self._spent + seconds <= self._plain * (1 + _ALLOWANCE)

    @property
    def caution(self) -> float:
        """Factor on costs: after losses only clear gains are taken, twice the price after a loss of 4 %."""
        return 1.0 if self._total < _GRACE else 1.0 + 25 * max(self.loss - _ALLOWANCE / 4, 0.0)
