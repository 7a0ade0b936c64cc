"""The controller that never pays more for guesses than they bring.

A step of n guesses takes t(n) and brings 1 + (guesses that hold) tokens. What a token is worth is the time it takes
otherwise: with the running rate λ in tokens a second, a set of guesses pays while ``E[tokens] - λ · t`` grows. Both
sides are measured: t on this machine (`CostCurve`), and how often guesses of a score hold (`Beliefs`).

* Guesses that cost no passes (n-grams) are made and judged; only rows that pay are verified. What they would have
  brought is learnt without buying it. Where nothing comes of it and a pass is so short that asking shows, they are
  made the less often (`Watch`).
* A draft model costs passes. It is asked while a chain of the best depth pays at its rate of hits (`Arm`); else it is
  left alone and tried again now and then, the less often the longer it does not pay.
* Trials are paid from a part of what speculation has won, and from a small allowance (`Ledger`).
* Now and then, and in a context of a length not met before, plain steps are taken, in which nobody is asked: so the
  time of plain decoding, and what a row pays for its context, are measured and not remembered.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from localspec.control.asking import Arm, Watch
from localspec.control.belief import Beliefs, believed
from localspec.control.controller import PassRecord, Walk, Wish, all_may, merged
from localspec.control.cost import JUMP, CostCurve
from localspec.control.ledger import Kind, Ledger
from localspec.control.price import Limits, Price
from localspec.control.threads import ThreadTuner
from localspec.spec.tree import TokenTree
from localspec.types import Standing

_PLAIN_EVERY = 96  # steps of speculation between two plain ones
_PLAIN_AT_FIRST = 8  # until it is known what a plain one takes
_FAR = 0.3  # share of a row's price under which a guess is not made
_READ = 0.2  # a token of prompt takes so much of a pass
_MUCH = 16  # tokens to be read by which an ask takes longer than its guesses do
_AHEAD = 256  # tokens that an answer is expected to go on for, at most
_FADE = 0.97
_BEST = 0.99  # share of guesses that hold, at most
_SLOWEST = 1.5  # times the expected: what a pass takes beyond that says nothing


@dataclass(slots=True)
class _Chat:
    """One conversation."""

    arms: dict[str, Arm] = field(default_factory=dict)  # drafters that cost passes
    watches: dict[str, Watch] = field(default_factory=lambda: defaultdict(Watch))  # and those that do not
    n_past: int = 0
    since_plain: int = 0  # steps
    priced: Mapping[str, Price] = field(default_factory=dict)  # whom it may ask in this step
    behind: Set[str] = frozenset()  # drafters that would have to read a text first
    said: dict[str, bool] = field(default_factory=dict)  # what the user was last told: whether a drafter is in use


class AutoController:
    """Picks for every step between plain decoding, a chain and a tree.

    Args:
        curve: cost of a pass by rows; an empty one learns from the first passes.
        tuner: picks the thread count; ``None`` leaves it alone.
    """

    def __init__(self, curve: CostCurve | None = None, tuner: ThreadTuner | None = None) -> None:
        self._curve = curve or CostCurve()
        self._tuner = tuner
        self._beliefs: dict[str, Beliefs] = defaultdict(Beliefs)
        self._chats: dict[int, _Chat] = {}
        self._latest: dict[str, Arm] = {}
        self._asked: set[str] = set()  # drafters that were asked once
        self._ask_s: dict[str, float] = {}  # seconds of an ask
        self._level_s: dict[str, float] = {}  # seconds of one of its levels
        # Seconds of a step outside passes and drafters.
        self._host: dict[Kind, float] = {"plain": 0.0, "asked": 0.0, "guessed": 0.0}
        self._ledger = Ledger()
        self._tokens = self._seconds = 0.0  # fading sums: their ratio is the rate
        self._sharers, self._beside = 1, 0  # sequences in this pass, and rows of prompts
        self._decides = False  # whether any of them leaves it to this controller what is guessed
        self._askers, self._trials = Counter[str](), Counter[str]()  # of them, by drafter: who asks it, who tries it
        self._rate = 0.0  # of this step
        self._notices: list[tuple[int, Standing]] = []

    @property
    def threads(self) -> int | None:
        return self._tuner.threads if self._tuner is not None else None

    # -- plan

    def plan(self, wishes: Sequence[Wish], beside: int = 0) -> list[Mapping[str, Price]]:
        self._sharers, self._beside = len(wishes), beside
        self._decides = any(wish.drafters and wish.spec.mode == "auto" for wish in wishes)
        if not self._decides:
            return [all_may(wish) for wish in wishes]
        self._rate = self._find_rate()
        self._count_askers(wishes)
        return [self._prices(wish) for wish in wishes]

    def _count_askers(self, wishes: Sequence[Wish]) -> None:
        self._askers.clear()
        self._trials.clear()
        for wish in wishes:
            if (chat := self._chats.get(wish.seq)) is not None:
                for name, arm in chat.arms.items():
                    self._count_asker(name, arm, 1)

    def _count_asker(self, name: str, arm: Arm, n: int) -> None:
        self._askers[name] += n * arm.is_asked
        self._trials[name] += n * (arm.burst > 0)

    def _prices(self, wish: Wish) -> Mapping[str, Price]:
        limits, mode = wish.limits, wish.spec.mode
        if limits.none or mode == "off":
            return {}
        if mode == "fixed":
            return all_may(wish)
        chat = self._chat(wish)
        chat.priced = {}
        chat.behind = {name for name in wish.costly if wish.drafters.get(name, 0) > _MUCH}
        due = chat.since_plain >= (_PLAIN_EVERY if self._ledger.knows_plain(self._sharers) else _PLAIN_AT_FIRST)
        if (due or not self._curve.known) and self._sharers == 1 and not self._beside:
            return {}
        prices = {}
        for name in wish.drafters:
            if name not in wish.costly:
                if chat.watches[name].due(self._vain_s(name) * self._rate / self._sharers):
                    prices[name] = self._free_price(wish.seq, name, limits)
                continue
            depth, until = self._depth(chat, name, wish)
            if depth > 0:
                prices[name] = self._price(wish.seq, name, replace(limits, depth=depth), until)
        chat.priced = prices
        return prices

    def _chat(self, wish: Wish) -> _Chat:
        chat = self._chats.setdefault(wish.seq, _Chat())
        if wish.n_past != chat.n_past:  # another question: what did not pay may pay now
            for arm in chat.arms.values():
                arm.hope()
            for name, watch in chat.watches.items():
                watch.hope()
                self._beliefs[name].doubt(wish.seq)
            if abs(wish.n_past - chat.n_past) > JUMP:  # rows cost something else now
                chat.since_plain = _PLAIN_EVERY
            chat.n_past = wish.n_past
        return chat

    def _free_price(self, seq: int, name: str, limits: Limits) -> Price:
        # Which guesses are worth a row is settled when all are there; one that is far from it need not be made.
        return Price(limits, _FAR * self._row_s, 0.0, 1 / self._rate, self._beliefs[name].of(seq))

    def _price(self, seq: int, name: str, limits: Limits, until: float) -> Price:
        """Another pass must pay for a row too."""
        pass_s = self._level_s.get(name, 0.0) + self._row_s
        return Price(limits, 0.0, pass_s, 1 / self._rate, self._beliefs[name].of(seq), until)

    def _pass_s(self, name: str, sharers: int) -> float:
        """Seconds that another level of guesses takes, for one of the sequences that ask together."""
        return self._level_s.get(name, 0.0) / max(sharers, 1)

    @property
    def _row_s(self) -> float:
        """Seconds of one more row, at its cheapest."""
        return min(self._extra(n) / n for n in (1, 3, 7))

    def _vain_s(self, name: str) -> float:
        """Seconds that asking takes where nothing comes of it."""
        plain, asked = self._host["plain"], self._host["asked"]
        return self._ask_s.get(name, 0.0) + (max(asked - plain, 0.0) if plain else 0.0)

    def _depth(self, chat: _Chat, name: str, wish: Wish) -> tuple[int, float]:
        """How deep a drafter that costs passes is asked to guess (0 = not at all), and how many tokens it must be
        worth: where free guesses bring as many, it need not be asked."""
        arm = chat.arms.get(name)
        if arm is None:
            arm = chat.arms[name] = self._latest[name].heir() if name in self._latest else Arm()
            self._count_asker(name, arm, 1)
        self._latest[name] = arm
        if arm.rests and not self._trials[name]:
            return 0, 0.0
        # In a trial all join.
        pass_s = self._pass_s(name, self._sharers)
        reading = _READ * wish.drafters[name] * pass_s
        affords = self._ledger.affords(arm.trial(pass_s) + reading)
        if not (affords or arm.is_asked):
            return 0, 0.0
        most = wish.limits.depth
        depth, gain = self._best_chain(arm.alpha, most, self._pass_s(name, self._askers[name]))
        # The first pass that tells what one takes may have been held up.
        fair_s = pass_s / _SLOWEST if arm.asks <= 2 else pass_s
        hopeless = not arm.on and bool(pass_s) and self._best_chain(_BEST, most, fair_s)[1] <= 0
        self._count_asker(name, arm, -1)
        if arm.decide(gain, affords, hopeless=hopeless, joins=self._trials[name] > 0):
            self._ledger.tries()
        self._count_asker(name, arm, 1)
        if arm.burst > 0:
            return 1, math.inf  # one level says how often guesses hold
        ahead = _AHEAD if wish.left is None else min(wish.left, _AHEAD)
        # What it has yet to read, a whole prompt perhaps, must be won back in the rest of the answer.
        wins = arm.on and gain * ahead / (1 + gain) > reading * self._rate
        return (depth, gain) if wins else (0, 0.0)

    def _best_chain(self, alpha: float, most: int, level_s: float) -> tuple[int, float]:
        """The depth at which a chain wins the most tokens a step, and how many more than plain decoding, where a level
        takes ``level_s``."""
        best, gain, held = 0, 0.0, 0.0
        host = (self._host["guessed"] - self._host["plain"]) / self._sharers
        for depth in range(1, most + 1):
            held += alpha**depth
            seconds = depth * level_s + self._extra(depth) + host
            if held - self._rate * seconds > gain:
                best, gain = depth, held - self._rate * seconds
        return best, gain

    # -- what things cost

    @property
    def plain_s(self) -> float | None:
        step = self._ledger.plain_step(self._sharers, self._plain_s * self._sharers)
        return None if step is None else step / self._sharers

    @property
    def _plain_s(self) -> float:
        """Seconds that a token takes without guesses, now; never 0."""
        return max((self._curve.seconds(self._sharers) + self._host["plain"]) / self._sharers, 1e-9)

    def _find_rate(self) -> float:
        """Tokens a second: what a second is worth. Never less than plain decoding brings."""
        plain = 1 / self._plain_s
        return max(self._tokens / self._seconds, plain) if self._seconds > 0 else plain

    def _extra(self, rows: int) -> float:
        """Seconds that so many rows more take."""
        there = self._sharers + self._beside
        return max(self._curve.seconds(there + rows) - self._curve.seconds(there), 0.0)

    # -- choose

    def choose(self, wishes: Sequence[Wish], proposals: Sequence[Mapping[str, TokenTree]]) -> list[TokenTree]:
        """Guesses of all sequences and drafters compete for the same rows."""
        trees = []
        for wish, mine in zip(wishes, proposals, strict=True):
            if wish.spec.mode == "auto":
                mine = {name: believed(tree, self._beliefs[name].of(wish.seq)) for name, tree in mine.items()}
            trees.append(merged(wish.limits, list(mine.values())))
        bidders = [i for i, wish in enumerate(wishes) if wish.spec.mode == "auto"]
        ranked = sorted((-reach, i) for i in bidders for reach in trees[i].reach[1:])
        owners = [owner for _, owner in ranked[: self._worthwhile([-reach for reach, _ in ranked])]]
        for i in bidders:
            trees[i] = trees[i].top(owners.count(i))
        return trees

    def _worthwhile(self, reaches: Sequence[float]) -> int:
        """How many of the guesses, likeliest first, make ``E[tokens] - λ · t`` largest."""
        best, most, held = 0, 0.0, 0.0
        host = self._host["guessed"] - self._host["asked"]
        for n, reach in enumerate(reaches, 1):
            held += reach
            seconds = host
            if not self._beside:  # else it is another number of rows in any case
                seconds += self._curve.change(self._sharers + n, self._sharers)
            seconds += self._extra(n) * self._ledger.caution
            gain = held - self._rate * seconds
            if gain > most:
                best, most = n, gain
        return best

    # -- observe

    def observe(self, record: PassRecord, walks: Sequence[Walk]) -> None:
        if self._tuner is not None:
            self._tuner.observe(record.rows + record.beside, record.wall_s, record.cpu_s)
        if not walks or not self._decides:  # its time is not that of trials, and pays for none
            return
        if record.beside:  # its times are not those of answers alone
            for walk in walks:
                if (chat := self._chats.get(walk.seq)) is not None:
                    self._learn_guesses(chat, walk)
            return
        change = self._curve.change(record.rows, len(walks))
        settled = self._curve.settled(record.rows)
        step_s = record.step_s - self._stall(record, settled)
        self._curve.observe(record.rows, record.wall_s, record.cells)
        kind: Kind = "guessed" if record.rows > len(walks) else "asked" if record.draft_s else "plain"
        self._learn_host(kind, max(record.step_s - record.wall_s - sum(record.draft_s.values()), 0.0))
        tokens = sum(len(walk.tokens) for walk in walks)
        self._tokens = self._tokens * _FADE + tokens
        self._seconds = self._seconds * _FADE + step_s
        token_s, n = self._plain_s, len(walks)
        plain_s = tokens * token_s if kind == "guessed" else step_s - self._vain(kind, record, settled)
        reading = self._reading_s(record, walks)
        self._ledger.add(
            tokens, step_s, plain_s, expected=token_s * n, reading=reading, sharers=n, kind=kind, settled=settled
        )
        for name, seconds in record.draft_s.items():
            self._learn_cost(name, seconds, walks)
        net = (tokens - step_s / token_s) / n
        rows = self._rate * (change + self._extra(record.rows - n)) / n if kind == "guessed" else 0.0
        for walk in walks:
            chat = self._chats.get(walk.seq)
            if chat is not None:
                chat.since_plain = 0 if kind == "plain" and settled else chat.since_plain + 1
                self._learn(chat, walk, record.draft_s.keys(), net, rows)

    def _stall(self, record: PassRecord, settled: bool) -> float:
        """Seconds that a pass took beyond all reason. On a busy machine some take ten times as long, and the long ones
        of many rows are hit most: no decision of ours is worth that much, for good or ill."""
        expected = self._curve.seconds(record.rows) + (0.0 if settled else self._curve.change_s)
        return max(record.wall_s - _SLOWEST * expected, 0.0) if expected else 0.0

    def _vain(self, kind: Kind, record: PassRecord, settled: bool) -> float:
        """Seconds of a step without guesses that a plain one would not have taken. Whatever else made it slow was none
        of our doing."""
        asking = self._host[kind] - self._host["plain"] + sum(record.draft_s.values())
        return max(asking, 0.0) + (0.0 if settled else self._curve.change_s)

    def _reading_s(self, record: PassRecord, walks: Sequence[Walk]) -> float:
        """Seconds of drafters that had a text to read first."""
        return sum(seconds for name, seconds in record.draft_s.items() if self._was_behind(name, walks))

    def _was_behind(self, name: str, walks: Sequence[Walk]) -> bool:
        return any(name in self._chats[walk.seq].behind for walk in walks if walk.seq in self._chats)

    def _learn_host(self, kind: Kind, seconds: float) -> None:
        known = self._host
        known[kind] += 0.1 * (min(seconds, 2 * known[kind]) - known[kind]) if known[kind] else seconds
        # What was never seen is taken for what is nearest to it.
        known["asked"] = known["asked"] or known["plain"]
        known["guessed"] = known["guessed"] or known["asked"]

    def _learn_cost(self, name: str, seconds: float, walks: Sequence[Walk]) -> None:
        if name not in self._asked:  # the first ask warms things up
            self._asked.add(name)
            return
        if self._was_behind(name, walks):
            return
        levels = max((max(walk.proposals[name].depths) for walk in walks if name in walk.proposals), default=0)
        for costs, cost in ((self._ask_s, seconds), (self._level_s, seconds / max(levels, 1))):
            known = costs.get(name)
            # So may others have: a lower cost is believed at once, a higher one slowly.
            costs[name] = cost if known is None or cost < known else known + 0.1 * (min(cost, 2 * known) - known)

    def _learn(self, chat: _Chat, walk: Walk, asked: Set[str], net: float, rows: float) -> None:
        """``net``: tokens of the step beyond those of plain decoding; ``rows``: price of its guesses in tokens."""
        n = len(walk.tokens)
        won = _won(walk, rows) if walk.verified.draft_n else {}
        asked = asked & chat.priced.keys()  # others may have asked, too
        for name, arm in chat.arms.items():
            if name in asked:
                others = sum(tokens for other, tokens in won.items() if other != name)
                arm.asked(None if name in chat.behind else net - others)
            else:
                arm.idle += n
        for name, watch in chat.watches.items():
            if name in asked:
                watch.asked(won.get(name, 0.0))
        self._learn_guesses(chat, walk)
        self._tell(walk.seq, chat)

    def _learn_guesses(self, chat: _Chat, walk: Walk) -> None:
        """How often they hold, whatever they cost."""
        chat.n_past += len(walk.tokens)
        for name, tree in walk.proposals.items():
            held, tried = self._beliefs[name].learn(walk.seq, tree, walk.tokens)
            if name in chat.arms:
                chat.arms[name].learn(held, tried)

    def forget(self, seq: int) -> None:
        self._chats.pop(seq, None)
        for beliefs in self._beliefs.values():
            beliefs.forget(seq)

    # -- what the user hears

    def _tell(self, seq: int, chat: _Chat) -> None:
        """Says when a drafter that costs something is left alone, and why; and when it is back and has paid."""
        for name, arm in chat.arms.items():
            if arm.burst <= 0 and arm.on != chat.said.get(name, True) and (arm.has_paid or not arm.on):
                chat.said[name] = arm.on
                self._notices.append((seq, self._standing(name, arm)))

    def _standing(self, name: str, arm: Arm) -> Standing:
        rate = f"{100 * arm.alpha:.0f} % of its guesses hold"
        if arm.on:
            return Standing(name, "in use", f"it pays again, {rate}")
        why = f"it costs more time than it saves. {rate}, {self._but(name, arm)}; it is tried again now and then"
        return Standing(name, "left alone", f"{why} (--spec fixed asks it always)")

    def _but(self, name: str, arm: Arm) -> str:
        level_s = self._pass_s(name, self._sharers)
        pays = (percent for percent in range(1, 100) if self._best_chain(percent / 100, 8, level_s)[1] > 0)
        needed = next(pays, None)
        if needed is None:
            return "and even if every one held, it would not pay"
        if 100 * arm.alpha < needed:
            return f"{needed} % would pay"
        return "and yet its steps took longer than plain ones for as many tokens"

    def notices(self) -> list[tuple[int, Standing]]:
        """What happened since the last call, by sequence."""
        notices, self._notices = self._notices, []
        return notices


def _won(walk: Walk, rows: float) -> dict[str, float]:
    """By drafter, the tokens that its guesses won beyond their part of ``rows``, the price of all of them in tokens."""
    row = rows / walk.verified.draft_n
    made, right = Counter(walk.verified.sources[1:]), Counter(_sources_of_held(walk))
    return {name: right[name] - made[name] * row for name in made}


def _sources_of_held(walk: Walk) -> Iterator[str]:
    """Who made the guesses that held, each booked once: on whoever was believed most."""
    tree, node = walk.verified, 0
    for token in walk.tokens[:-1]:
        node = tree.children[node][token]
        yield tree.sources[node]
