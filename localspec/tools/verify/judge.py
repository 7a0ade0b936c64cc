"""Whether two answers are the same, and if not, whether rounding explains it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from localspec.backends.base import Row
from localspec.sampling import SamplerState
from localspec.tools.verify.replay import Answer, Table

Verdict = Literal["equal", "rounding", "fault"]
#: A pass over a tree may move logits so much further than the control does at its worst position.
_SLACK = 1.5
_FLOOR = 1e-5
#: Tokens that are looked at for the place of one among the best.
_BEST = 64


@dataclass(frozen=True, slots=True)
class Control:
    """What happens to one text when plain decoding computes it in other shapes: at ``flips`` of ``positions`` another
    token is drawn, and no logit moves by more than ``moved``."""

    positions: int
    flips: int
    moved: float

    @property
    def bound(self) -> float:
        """What a logit may move by for it to be rounding."""
        return _SLACK * self.moved + _FLOOR


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two answers part first.

    ``plain_token`` and ``token`` are the pieces that came; ``plain_gap`` and ``gap`` how far the best two tokens lie
    apart in what the draw compares (logits, or scores with noise), once as plain decoding computes them and once in the
    shape of the tree; ``plain_lag`` and ``lag`` how far the token that came lies behind the best there; ``moved`` what
    the two rows differ by at most, ``bound`` what the control allows.
    """

    position: int
    plain_token: str
    token: str
    plain_gap: float
    gap: float
    plain_lag: float
    lag: float
    moved: float
    bound: float
    verdict: Verdict
    why: str


def control(states: Sequence[SamplerState], plain: Table, moved: Table) -> Control:
    """Compares the rows of one text, drawn from by the states of its positions."""
    flips = sum(state.draw(one) != state.draw(other) for state, one, other in zip(states, plain, moved, strict=True))
    return Control(len(states), flips, _distance(plain, moved))


def states(start: SamplerState, ids: Sequence[int], rows: Table) -> Iterator[SamplerState]:
    """The sampler's state at every position of an answer, and at the one behind it. ``rows`` are what its tokens were
    decided from: some samplers learn from them."""
    yield start
    for token, row in zip(ids, rows, strict=False):
        start = start.advance(token, row.view)
        yield start


def parted(plain: Answer, ours: Answer) -> int | None:
    """The first position at which two answers are not the same; ``None``: they are, tokens, text and end."""
    if (plain.ids, plain.text, plain.reason) == (ours.ids, ours.text, ours.reason):
        return None
    pairs = enumerate(zip(plain.ids, ours.ids, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(plain.ids), len(ours.ids)))


class Judge:
    """Judges the differences of answers to one prompt by one sampler.

    Args:
        plain: the answer without guesses, with its rows and the states of its positions.
        ends: ids that end a text: they came where an answer stopped.
        piece: id → what it stands for.
    """

    def __init__(
        self,
        plain: Answer,
        rows: Table,
        at: Sequence[SamplerState],
        allowed: Control,
        ends: Iterable[int],
        piece: Callable[[int], str],
    ) -> None:
        self._plain = plain
        self._rows = rows
        self._states = at
        self._control = allowed
        self._ends = tuple(ends)
        self._piece = piece

    def judge(self, ours: Answer, position: int, row: Row | None) -> Difference:
        """Rounding explains a difference if three things hold: each answer has what its own row draws there, or all but
        draws it; and the two rows differ by no more than the control's do."""
        plain_row, state = self._rows[position], self._states[position]
        mine = plain_row if row is None else row
        bound = self._control.bound
        near = 2 * bound / (state.params.temperature if state.params.temperature > 0 else 1.0)
        plain_lag = self._lag(state, plain_row, self._plain, position)
        lag = self._lag(state, mine, ours, position)
        moved = _distance(plain_row, mine)
        if row is None:
            why = "no pass computed this position"
        elif lag > near:
            why = "the token is not the one that its own pass draws"
        elif moved > bound:
            why = "the pass moves logits by more than rounding does"
        elif plain_lag > near:
            why = "plain decoding does not draw its own token again"
        else:
            why = ""
        return Difference(
            position=position,
            plain_token=self._token(self._plain, position),
            token=self._token(ours, position),
            plain_gap=_gap(state, plain_row),
            gap=_gap(state, mine),
            plain_lag=plain_lag,
            lag=lag,
            moved=moved,
            bound=bound,
            verdict="fault" if why else "rounding",
            why=why or "a near-tie",
        )

    def _tokens(self, found: Answer, position: int) -> tuple[int, ...]:
        """The token that came, or any that may have ended the answer."""
        if position < len(found.ids):
            return (found.ids[position],)
        return self._ends if found.reason == "stop" else ()

    def _token(self, found: Answer, position: int) -> str:
        return self._piece(found.ids[position]) if position < len(found.ids) else f"({found.reason})"

    def _lag(self, state: SamplerState, row: Row, found: Answer, position: int) -> float:
        best = _best(state, row)
        top = max(best.values())
        return min((top - best[token] for token in self._tokens(found, position) if token in best), default=math.inf)


def allowed_differences(compared: int, flips: int, positions: int) -> float:
    """How many of ``compared`` positions may differ if the control flips at ``flips`` of ``positions``: what that rate
    leads to expect, and three standard deviations of such a count."""
    expected = compared * flips / positions if positions else 0.0
    return expected + 3 * math.sqrt(expected + 1)


def _best(state: SamplerState, row: Row) -> dict[int, float]:
    """Token → what the draw compares, up to a constant, of the best."""
    return {token: math.log(chance) for token, chance in state.guesses(row, _BEST) if chance > 0}


def _gap(state: SamplerState, row: Row) -> float:
    values = sorted(_best(state, row).values(), reverse=True)
    return values[0] - values[1] if len(values) > 1 else math.inf


def _distance(one: Table | Row, other: Table | Row) -> float:
    return float(np.abs(one - other).max())
