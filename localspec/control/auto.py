"""The controller that never pays more for guesses than they bring.

A step of n guesses takes t(n) and brings 1 + (guesses that hold) tokens. What a token is worth is the time it takes
otherwise: with the running rate λ in tokens a second, a set of guesses pays while ``E[tokens] - λ · t`` grows. Both
sides are measured: t on this machine (`CostCurve`), and how often guesses of a score hold (`Beliefs`).

* Guesses that cost nothing to make (n-grams) are always made and judged; only rows that pay are verified. What they
  would have brought is learnt without buying it.
* A draft model costs passes. It is asked while a chain of the best depth pays at its rate of hits (`Arm`); else it is
  left alone and tried again now and then, the less often the longer it does not pay.
* Trials are paid from what speculation has won, or from a small allowance (`Ledger`).
* Now and then a plain step is taken, so that the time of plain decoding is measured and not remembered.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from localspec.control.belief import Beliefs, believed
from localspec.control.controller import PassRecord, Walk, Wish, merged
from localspec.control.cost import CostCurve
from localspec.control.ledger import Ledger
from localspec.control.price import Limits, Price
from localspec.control.threads import ThreadTuner
from localspec.spec.tree import TokenTree

_FREE = 0.06  # a drafter is free if an ask costs less than this share of a plain step
_PLAIN_EVERY = 96  # steps of speculation between two plain ones
_MARGIN = 0.03  # tokens a step that a drafter must win to be switched on
_BURST = 4  # steps of a trial
_FEW = 6  # asks that prove nothing
_FAR = 0.3  # share of a row's price under which a guess is not made
_READ = 0.2  # a token of prompt takes so much of a pass
_FIRST_WAIT, _LAST_WAIT = 24, 1024  # tokens between trials
_FADE = 0.97


@dataclass(slots=True)
class Arm:
    """A drafter that costs something, in one conversation.

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
    idle: int = 0  # tokens since it was last asked

    @property
    def alpha(self) -> float:
        return self.hits / self.tried

    def learn(self, hits: int, tried: int) -> None:
        fade = _FADE**tried
        self.hits = self.hits * fade + hits
        self.tried = self.tried * fade + tried

    def asked(self, net: float) -> None:
        """It was asked in a step that brought ``net`` tokens more than plain decoding in the same time."""
        self.idle = 0
        self.burst -= self.burst > 0
        self.asks += 1
        self.net += max(1 / self.asks, 0.1) * (net - self.net)

    def decide(self, gain: float, may_try: bool) -> None:
        """``gain``: tokens a step that a chain of the best depth is expected to bring beyond its time."""
        if self.burst > 0:
            return
        if self.on:
            if gain <= 0 or (self.asks > _FEW and self.net < 0):
                self.on = False
                self._back_off()
            elif self.asks > 10 * _FEW:
                self.wait = _FIRST_WAIT
        elif self.idle == 0:  # a trial is over
            self.on, self.asks = gain > _MARGIN, 0
            if not self.on:
                self._back_off()
        elif self.idle >= self.wait and may_try:
            self.burst = _BURST

    def heir(self) -> Arm:
        """What another conversation starts from: all that is known, none of it certain."""
        return Arm(4 * self.alpha, 4.0, on=self.on, burst=self.burst, wait=self.wait, idle=1)

    def _back_off(self) -> None:
        self.idle = 1
        self.wait = min(2 * self.wait, _LAST_WAIT)


@dataclass(slots=True)
class _Chat:
    """One conversation."""

    arms: dict[str, Arm] = field(default_factory=dict)
    n_past: int = 0
    since_plain: int = 0
    said: bool = True  # what the user was last told: whether speculation is on


class AutoController:
    """Picks for every step between plain decoding, a chain and a tree.

    Args:
        curve: cost of a pass by rows; an empty one learns from the first passes.
        tuner: picks the thread count; ``None`` leaves it alone.
    """

    def __init__(self, curve: CostCurve | None = None, tuner: ThreadTuner | None = None) -> None:
        self._curve = curve or CostCurve()
        self._tuner = tuner
        self._beliefs: dict[str, Beliefs] = {}
        self._chats: dict[int, _Chat] = {}
        self._latest: dict[str, Arm] = {}
        self._ask_s: dict[str, float] = {}  # seconds of an ask
        self._level_s: dict[str, float] = {}  # seconds of one of its levels
        self._host = {False: 0.0, True: 0.0}  # seconds of a step outside passes: plain, with guesses
        self._ledger = Ledger()
        self._tokens = self._seconds = 0.0  # fading sums: their ratio is the rate
        self._sharers = 1
        self._rate = 0.0  # of this step
        self._notices: list[tuple[int, str]] = []

    @property
    def threads(self) -> int | None:
        return self._tuner.threads if self._tuner is not None else None

    # -- plan

    def plan(self, wishes: Sequence[Wish]) -> list[Mapping[str, Price]]:
        self._sharers = len(wishes)
        if not any(wish.drafters for wish in wishes):
            return [{} for _ in wishes]
        self._rate = self._find_rate()
        return [self._prices(wish) for wish in wishes]

    def _prices(self, wish: Wish) -> Mapping[str, Price]:
        limits, mode = wish.limits, wish.spec.mode
        if limits.none or mode == "off":
            return {}
        if mode == "fixed":
            return dict.fromkeys(wish.drafters, Price(limits))
        chat = self._chat(wish)
        if chat.since_plain >= _PLAIN_EVERY and self._sharers == 1:
            return {}
        prices = {}
        for name in wish.drafters:
            depth, until = limits.depth, math.inf
            if not self._is_free(name):
                depth, until = self._depth(chat, name, limits.depth, wish.drafters[name])
            if depth > 0:
                prices[name] = self._price(wish.seq, name, replace(limits, depth=depth), until)
        return prices

    def _chat(self, wish: Wish) -> _Chat:
        chat = self._chats.setdefault(wish.seq, _Chat())
        if wish.n_past != chat.n_past:  # another question: what did not pay may pay now
            for arm in chat.arms.values():
                arm.wait = min(arm.wait, 4 * _FIRST_WAIT)
            chat.n_past = wish.n_past
        return chat

    def _price(self, seq: int, name: str, limits: Limits, until: float) -> Price:
        table = self._beliefs.setdefault(name, Beliefs()).table(seq)
        # Which guesses are worth a row is settled when all are there; one that is far from it need not be made. Another
        # pass must pay for a row too.
        row = min(self._extra(n) / n for n in (1, 3, 7))
        level = self._level_s.get(name, 0.0)
        if self._is_free(name):
            return Price(limits, _FAR * row, 0.0, 1 / self._rate, table, until)
        return Price(limits, 0.0, level + row, 1 / self._rate, table, until)

    def _is_free(self, name: str) -> bool:
        return self._ask_s.get(name, 0.0) <= _FREE * self._plain_s

    def _depth(self, chat: _Chat, name: str, most: int, lag: int) -> tuple[int, float]:
        """How deep a drafter that costs passes is asked to guess (0 = not at all), and how many tokens it must be
        worth: where free guesses bring as many, it need not be asked."""
        arm = chat.arms.get(name)
        if arm is None:
            arm = chat.arms[name] = self._latest[name].heir() if name in self._latest else Arm()
        self._latest[name] = arm
        depth, gain = self._best_chain(name, arm.alpha, most)
        trial_s = (_BURST + _READ * lag) * self._level_s.get(name, 0.0)
        arm.decide(gain, self._ledger.affords(trial_s))
        if arm.burst > 0:
            return 1, math.inf  # one level says how often guesses hold
        return (depth, gain) if arm.on else (0, 0.0)

    def _best_chain(self, name: str, alpha: float, most: int) -> tuple[int, float]:
        """The depth at which a chain wins the most tokens a step, and how many more than plain decoding."""
        best, gain, held = 0, 0.0, 0.0
        host = self._host[True] - self._host[False]
        for depth in range(1, most + 1):
            held += alpha**depth
            seconds = depth * self._level_s.get(name, 0.0) + self._extra(depth) + host
            if held - self._rate * seconds > gain:
                best, gain = depth, held - self._rate * seconds
        return best, gain

    # -- what things cost

    @property
    def plain_s(self) -> float | None:
        step = self._ledger.plain_step(self._sharers)
        return None if step is None else step / self._sharers

    @property
    def _plain_s(self) -> float:
        """Seconds that a token takes without guesses, now."""
        return (self._curve.seconds(self._sharers) + self._host[False]) / self._sharers

    def _find_rate(self) -> float:
        """Tokens a second: what a second is worth. Never less than plain decoding brings."""
        plain = 1 / max(self._plain_s, 1e-9)
        return max(self._tokens / self._seconds, plain) if self._seconds > 0 else plain

    def _extra(self, rows: int) -> float:
        """Seconds that so many rows more take."""
        return max(self._curve.seconds(self._sharers + rows) - self._curve.seconds(self._sharers), 0.0)

    # -- choose

    def choose(self, wishes: Sequence[Wish], proposals: Sequence[Mapping[str, TokenTree]]) -> list[TokenTree]:
        """Guesses of all sequences and drafters compete for the same rows."""
        trees = []
        for wish, mine in zip(wishes, proposals, strict=True):
            if wish.spec.mode == "auto":
                tables = {name: self._beliefs[name].table(wish.seq) for name in mine}
                mine = {name: believed(tree, tables[name]) for name, tree in mine.items()}
            trees.append(merged(wish.limits, list(mine.values())))
        bidders = [i for i, wish in enumerate(wishes) if wish.spec.mode == "auto"]
        rows = self._worthwhile(sorted((reach for i in bidders for reach in trees[i].reach[1:]), reverse=True))
        ranked = sorted(
            ((-reach, i, node) for i in bidders for node, reach in enumerate(trees[i].reach) if node), reverse=False
        )
        for i in bidders:
            trees[i] = trees[i].top(sum(owner == i for _, owner, _ in ranked[:rows]))
        return trees

    def _worthwhile(self, reaches: Sequence[float]) -> int:
        """How many of the guesses, likeliest first, make ``E[tokens] - λ · t`` largest."""
        best, most, held = 0, 0.0, 0.0
        start = self._rate * (self._host[True] - self._host[False])
        for n, reach in enumerate(reaches, 1):
            held += reach
            gain = held - start - self._rate * self._extra(n) * self._ledger.caution
            if gain > most:
                best, most = n, gain
        return best

    # -- observe

    def observe(self, record: PassRecord, walks: Sequence[Walk]) -> None:
        if self._tuner is not None:
            self._tuner.observe(record.rows, record.wall_s, record.cpu_s)
        if not walks or not self._chats:  # nobody has ever been asked
            return
        self._curve.observe(record.rows, record.wall_s)
        guessed = record.rows > len(walks)
        host = max(record.step_s - record.wall_s - sum(record.draft_s.values()), 0.0)
        self._host[guessed] += 0.1 * (host - self._host[guessed]) if self._host[guessed] else host
        if not self._host[True]:
            self._host[True] = self._host[False]
        tokens = sum(len(walk.tokens) for walk in walks)
        self._tokens = self._tokens * _FADE + tokens
        self._seconds = self._seconds * _FADE + record.step_s
        self._ledger.add(tokens, record.step_s, tokens * self._plain_s, sharers=len(walks), guessed=guessed)
        for name, seconds in record.draft_s.items():
            self._learn_cost(name, seconds, walks)
        net = (tokens - record.step_s / self._plain_s) / len(walks)
        for walk in walks:
            self._learn(walk, record.draft_s, net)

    def _learn_cost(self, name: str, seconds: float, walks: Sequence[Walk]) -> None:
        levels = max((max(walk.proposals[name].depths) for walk in walks if name in walk.proposals), default=0)
        for costs, cost in ((self._ask_s, seconds), (self._level_s, seconds / max(levels, 1))):
            known = costs.get(name)
            # The first ask may have read the whole prompt: a lower cost is believed at once, a higher one slowly.
            costs[name] = cost if known is None or cost < known else known + 0.1 * (min(cost, 2 * known) - known)

    def _learn(self, walk: Walk, asked: Mapping[str, float], net: float) -> None:
        chat = self._chats.get(walk.seq)
        if chat is None:
            return
        n = len(walk.tokens)
        chat.n_past += n
        chat.since_plain = chat.since_plain + 1 if walk.verified.draft_n else 0
        for name in chat.arms:
            if name in asked:
                chat.arms[name].asked(net)
            else:
                chat.arms[name].idle += n
        for name, tree in walk.proposals.items():
            held, tried = self._beliefs.setdefault(name, Beliefs()).learn(walk.seq, tree, walk.tokens)
            if (arm := chat.arms.get(name)) is not None:
                arm.learn(held, tried)
        self._tell(walk.seq, chat)

    # -- what the user hears

    def _tell(self, seq: int, chat: _Chat) -> None:
        """Says when the drafters that cost something are all left alone, and why; and when one is back."""
        judged = {name: arm for name, arm in chat.arms.items() if arm.burst <= 0}
        if not judged or len(judged) < len(chat.arms):
            return
        on = any(arm.on for arm in judged.values())
        if on == chat.said:
            return
        chat.said = on
        name, arm = max(judged.items(), key=lambda item: item[1].alpha)
        if on:
            text = f"{name} guesses again: {self._rate_of(arm)} of its guesses hold"
        else:
            text = (
                f"{name} is left alone, it takes more time than it saves: {self._rate_of(arm)} of its guesses hold,"
                f" {self._needed(name)} (--spec fixed asks it all the same)"
            )
        self._notices.append((seq, text))

    def _rate_of(self, arm: Arm) -> str:
        return f"{100 * arm.alpha:.0f} %"

    def _needed(self, name: str) -> str:
        for percent in range(1, 100):
            if self._best_chain(name, percent / 100, 8)[1] > 0:
                return f"{percent} % would pay"
        return "and all of them would not be enough"

    def notices(self) -> list[tuple[int, str]]:
        """What happened since the last call: (sequence, line)."""
        notices, self._notices = self._notices, []
        return notices
