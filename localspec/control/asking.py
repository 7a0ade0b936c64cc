"""Whether a drafter is asked, in one conversation."""

from __future__ import annotations

from dataclasses import dataclass

_MARGIN = 0.03  # tokens a step that a drafter must win to be switched on
_BURST = 4  # steps of a trial
_FEW = 6  # asks that prove nothing
_FIRST_WAIT, _LAST_WAIT = 24, 1024  # tokens between trials
_FADE = 0.97
_CHEAP = 0.005  # share of plain decoding that asking in vain may cost


@dataclass(slots=True)
class Watch:
    """A drafter that asks no model. While its guesses bring more than asking costs, or asking costs next to nothing,
    it is asked in every step; else only so often that it costs next to nothing."""

    gain: float = 0.2  # tokens a step that its guesses brought lately, beyond the price of their rows
    idle: int = 0  # steps since it was last asked

    def due(self, cost: float) -> bool:
        """Whether it is asked in this step. ``cost``: of an ask, in tokens."""
        self.idle += 1
        return cost <= max(self.gain, _CHEAP * self.idle)

    def asked(self, gain: float) -> None:
        """It was asked in a step in which its guesses won ``gain`` tokens."""
        self.idle = 0
        self.gain += 0.1 * (gain - self.gain)

    def hope(self) -> None:
        """The text is another now."""
        self.gain = max(self.gain, Watch().gain)


@dataclass(slots=True)
class Arm:
    """A drafter that costs passes of a model.

    Whether it is asked follows from how often its likeliest guess of a level holds (``alpha``): what a chain of the
    best depth must then bring. Whether it goes on being asked follows from what it did bring (``net``: tokens a step
    beyond those of plain decoding in the same time), since no model of it is quite right.
    """

    hits: float = 1.4
    tried: float = 2.0
    net: float = 0.0
    on: bool = False
    burst: int = _BURST  # steps left of a trial, in which it is asked whatever is known
    asks: int = 0  # since it was switched on
    wait: int = _FIRST_WAIT
    longest: int = _LAST_WAIT
    idle: int = 0  # tokens since it was last asked

    @property
    def alpha(self) -> float:
        return self.hits / self.tried

    @property
    def is_asked(self) -> bool:
        """Whether it was asked in the last step, or is going to be."""
        return self.on or self.burst > 0 or self.idle == 0

    @property
    def rests(self) -> bool:
        """Whether it was left alone too lately for another trial, unless others try it."""
        return not self.is_asked and self.idle < self.wait

    @property
    def has_paid(self) -> bool:
        """Whether it has been asked for a while, and gained by it."""
        return self.asks > 4 * _FEW and self.net > 0

    def learn(self, hits: int, tried: int) -> None:
        fade = _FADE**tried
        self.hits = self.hits * fade + hits
        self.tried = self.tried * fade + tried

    def asked(self, net: float | None) -> None:
        """It was asked in a step that brought ``net`` tokens more than plain decoding in the same time; ``None``: it
        had to read a text first, which is paid once, and was reckoned with."""
        self.idle = 0
        self.burst -= self.burst > 0
        if net is not None:
            self.asks += 1
            self.net += max(1 / self.asks, 0.1) * (net - self.net)

    def decide(self, gain: float, may_try: bool, *, hopeless: bool = False, joins: bool = False) -> bool:
        """Whether another trial begins.

        ``gain``: tokens a step that a chain of the best depth is expected to bring beyond its time. ``hopeless``: as
        far as is known it brings nothing, however often its guesses hold; what it costs is looked at again rarely.
        ``joins``: it is on trial in another conversation, so that its passes are made anyway."""
        if self.burst > 0:
            if hopeless and self.asks > 1:  # the first may have been held up
                self.burst, self.idle = 0, 1
        elif self.on:
            if gain <= 0 or (self.asks > _FEW and self.net < 0):
                self.on = False
                self._back_off()
            elif self.has_paid:  # what paid once may pay again
                self.wait, self.longest = _FIRST_WAIT, 4 * _FIRST_WAIT
        elif self.idle == 0:  # a trial is over
            self.on = gain > _MARGIN
            if self.on:
                self.asks = 0
            elif self.net > 0 and not hopeless:
                # What was seen before weighs it down: it may go on while it loses nothing.
                self.burst = _BURST
            else:
                self._back_off()
        elif may_try and (joins or self.idle >= (_LAST_WAIT if hopeless else self.wait)):
            self.burst, self.asks = _BURST, 0
            return True
        return False

    def trial(self, pass_s: float) -> float:
        """Seconds that the passes of a trial take."""
        return _BURST * pass_s

    def hope(self) -> None:
        """The text is another now: what did not pay may pay."""
        self.wait = min(self.wait, 4 * _FIRST_WAIT)

    def heir(self) -> Arm:
        """What another conversation starts from: all that is known, none of it certain."""
        idle = max(self.idle, 1)
        return Arm(4 * self.alpha, 4.0, on=self.on, burst=self.burst, wait=self.wait, longest=self.longest, idle=idle)

    def _back_off(self) -> None:
        self.idle = 1
        self.wait = min(2 * self.wait, self.longest)
