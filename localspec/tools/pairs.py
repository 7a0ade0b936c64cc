"""The order of a measurement: every setting beside the baseline on the same prompt, round after round."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Protocol

from localspec.tools.prompts import Prompt
from localspec.types import SpecStats

#: Below two rounds there is no spread, and one order of the two runs only.
FEWEST_ROUNDS = 2
WARM_UP_TOKENS = 8
#: Name of the baseline that is a model here, decoding without guesses.
PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Run:
    """One answer: ``tokens`` in it, tokens a second from its first to its last (``None``: too short to say), its text,
    ``seconds`` from the question to its end, its ids (``None``: a server does not tell them), and statistics of
    guesses where there are any."""

    tokens: int
    speed: float | None
    text: str
    seconds: float
    ids: tuple[int, ...] | None = None
    stats: SpecStats | None = None

    @property
    def whole_speed(self) -> float | None:
        """Tokens a second, the reading of the prompt included."""
        return self.tokens / self.seconds if self.tokens and self.seconds > 0 else None


@dataclass(frozen=True, slots=True)
class Pair:
    """One answer of a setting and the baseline's beside it (``None``: none was asked for)."""

    prompt: Prompt
    plain: Run | None
    mine: Run

    @property
    def ratio(self) -> float | None:
        """Speed against the baseline. ``None`` where there is nothing to compare: no baseline, no speed-up."""
        return None if self.plain is None else _over(self.mine.speed, self.plain.speed)

    @property
    def whole(self) -> float | None:
        """As `ratio`, of whole answers: the reading of the prompt included."""
        return None if self.plain is None else _over(self.mine.whole_speed, self.plain.whole_speed)

    @property
    def equal(self) -> bool | None:
        """Whether both said the same: the same tokens, or where those are not told the same text."""
        if self.plain is None:
            return None
        if self.plain.ids is None or self.mine.ids is None:
            return self.plain.text == self.mine.text
        return self.plain.ids == self.mine.ids


def _over(mine: float | None, plain: float | None) -> float | None:
    return mine / plain if mine is not None and plain else None


class Runner(Protocol):
    """Whatever answers prompts."""

    def run(self, way: str | None, prompt: Prompt, tokens: int) -> Run:
        """One answer of up to ``tokens`` tokens by the setting ``way``; ``None`` is the baseline.

        Raises:
            LocalspecError: there is no answer.
        """
        ...


@dataclass(frozen=True, slots=True)
class Several:
    """Answers of several runners in one measurement: setting → the runner that has it."""

    by_way: Mapping[str | None, Runner]

    def run(self, way: str | None, prompt: Prompt, tokens: int) -> Run:
        """As `Runner.run`."""
        return self.by_way[way].run(way, prompt, tokens)


@dataclass(frozen=True, slots=True)
class Order:
    """What is measured: settings, prompts, rounds of all of them, tokens an answer, what the baseline is called
    (``None``: there is none), and after how many seconds no further round is begun (``None``: never)."""

    ways: tuple[str, ...]
    prompts: tuple[Prompt, ...]
    rounds: int
    tokens: int
    baseline: str | None = PLAIN
    budget_s: float | None = None


@dataclass(slots=True)
class Measured:
    """Pairs by setting, in the order they were made, and how many rounds there were."""

    order: Order
    pairs: dict[str, list[Pair]] = field(default_factory=dict)
    rounds: int = 0

    @property
    def cut_short(self) -> bool:
        return self.rounds < self.order.rounds

    def of(self, way: str, category: str | None = None) -> list[Pair]:
        """Pairs of a setting, of one category or of all."""
        return [pair for pair in self.pairs[way] if category is None or pair.prompt.category == category]

    @property
    def categories(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(prompt.category for prompt in self.order.prompts))


def measure(
    runner: Runner,
    order: Order,
    *,
    clock: Callable[[], float] = time.perf_counter,
    progress: Callable[[float], object] = lambda share: None,
) -> Measured:
    """Runs it all. In every round each setting answers each prompt right beside the baseline's answer to it: after it
    in the first round, before it in the next. Neighbours on the machine and its temperature meet both alike.

    A round is begun if the slowest one so far still fits into the budget, but two are made in any case.

    Raises:
        LocalspecError: an answer failed.
    """
    began = clock()
    _warm_up(runner, order)
    measured = Measured(order, {way: [] for way in order.ways})
    steps, slowest = order.rounds * len(order.prompts) * len(order.ways), 0.0
    while measured.rounds < order.rounds:
        start = clock()
        late = order.budget_s is not None and start - began + slowest > order.budget_s
        if late and measured.rounds >= FEWEST_ROUNDS:
            break
        for prompt, way in product(order.prompts, order.ways):
            measured.pairs[way].append(_pair(runner, order, way, prompt, mine_first=measured.rounds % 2 == 1))
            progress(sum(map(len, measured.pairs.values())) / steps)
        slowest = max(slowest, clock() - start)
        measured.rounds += 1
    return measured


def _warm_up(runner: Runner, order: Order) -> None:
    """Caches fill, buffers are made, graphs are built: a short answer of every setting in every category."""
    firsts = {prompt.category: prompt for prompt in reversed(order.prompts)}
    ways: Sequence[str | None] = order.ways if order.baseline is None else (None, *order.ways)
    for prompt, way in product(firsts.values(), ways):
        runner.run(way, prompt, min(WARM_UP_TOKENS, order.tokens))


def _pair(runner: Runner, order: Order, way: str, prompt: Prompt, *, mine_first: bool) -> Pair:
    if order.baseline is None:
        return Pair(prompt, None, runner.run(way, prompt, order.tokens))
    if mine_first:
        mine = runner.run(way, prompt, order.tokens)
        return Pair(prompt, runner.run(None, prompt, order.tokens), mine)
    plain = runner.run(None, prompt, order.tokens)
    return Pair(prompt, plain, runner.run(way, prompt, order.tokens))


def side_by_side(runner: Runner, ways: Sequence[str], prompt: Prompt, tokens: int) -> dict[str, Pair]:
    """Every setting once, each right beside a plain answer. Such an answer serves the setting before it and the one
    after it, so that several settings cost half as many plain answers, and one more.

    Raises:
        LocalspecError: an answer failed.
    """
    found: dict[str, Pair] = {}
    plain = runner.run(None, prompt, tokens)
    for at, way in enumerate(ways):
        mine = runner.run(way, prompt, tokens)
        if at % 2:
            plain = runner.run(None, prompt, tokens)
        found[way] = Pair(prompt, plain, mine)
    return found
