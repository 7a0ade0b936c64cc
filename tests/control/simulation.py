"""A decoding loop without models: traces of what drafters would have guessed, and a clock that only costs advance."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from localspec.control import Controller, CostCurve, Limits, PassRecord, Price, Walk, Wish
from localspec.spec.tree import TokenTree
from localspec.types import SpecParams

#: Pass of n rows relative to one row, as measured or published.
CURVES: dict[str, Callable[[int], float]] = {
    # SmolLM2 on two cores: 1/2.4/4.0/7.8 at 1/4/8/16 rows.
    "Q4_1": lambda n: _line(n, {1: 1.0, 4: 2.4, 8: 4.0, 16: 7.8, 32: 15.6}),
    "F16": lambda n: _line(n, {1: 1.0, 4: 1.4, 8: 2.1, 16: 3.4, 32: 6.5}),
    # A GPU that reads its weights once for up to 64 rows.
    "GPU": lambda n: _line(n, {1: 1.0, 8: 1.04, 16: 1.09, 32: 1.2, 64: 1.5}),
}


def _line(n: int, points: Mapping[int, float]) -> float:
    known = list(points)
    right = next((i for i, at in enumerate(known) if at >= n), len(known) - 1)
    right = max(right, 1)
    a, b = known[right - 1], known[right]
    return points[a] + (points[b] - points[a]) * (n - a) / (b - a)


@dataclass(frozen=True)
class Source:
    """A drafter on a trace: at each position whether its guess is right, how sure it is, and whether it has one.
    ``pass_s``: seconds a level; ``ask_s``: seconds of an ask where it takes no passes."""

    right: Sequence[bool]
    scores: Sequence[float]
    has: Sequence[bool]
    pass_s: float = 0.0
    ask_s: float = 1e-4

    def propose(self, name: str, at: int, price: Price) -> TokenTree:
        """A chain over the pending token of position ``at``. Token i of the text is i; a wrong one is -i - 1."""
        tokens, scores, reach, on_the_way = [at], [1.0], 1.0, True
        for i in range(at + 1, at + 1 + price.limits.depth):
            if i >= len(self.right) or not self.has[at] or len(tokens) > price.limits.nodes:
                break
            believed = reach * price.believed(self.scores[i])
            if not price.pays(believed) or (self.pass_s and i > at + 1 and not price.pass_pays(reach)):
                break
            reach = believed
            on_the_way = on_the_way and self.right[i]  # behind a wrong guess everything is wrong
            tokens.append(i if on_the_way else -i - 1)
            scores.append(self.scores[i])
        return TokenTree(
            tuple(tokens), tuple(range(-1, len(tokens) - 1)), tuple(scores), ("",) + (name,) * (len(tokens) - 1)
        )


def source(
    alphas: Sequence[float],
    seed: int,
    *,
    pass_s: float = 0.0,
    ask_s: float = 1e-4,
    has: float = 1.0,
    honest: bool = True,
) -> Source:
    """Guesses that are right with probability ``alphas[i]``; an honest drafter is surer where it is right."""
    rng = random.Random(seed)
    right = [rng.random() < alpha for alpha in alphas]
    scores = [min(max(rng.gauss(0.75 if hit and honest else 0.45, 0.2), 0.01), 0.999) for hit in right]
    runs: list[bool] = []
    while len(runs) < len(right):
        runs += [rng.random() < has] * rng.randint(4, 24)
    return Source(right, scores, runs[: len(right)], pass_s, ask_s)


@dataclass(frozen=True)
class Run:
    """What happened: seconds and tokens of every step; how many guesses were verified in all."""

    steps: Sequence[tuple[float, int]]
    guesses: int = 0

    @property
    def seconds(self) -> float:
        return sum(seconds for seconds, _ in self.steps)

    def worst_window(self, plain_s: float, span: int, start: int) -> float:
        """The slowest ``span`` tokens after the first ``start``: plain time over time taken."""
        ends, clock = [0.0], 0.0
        for seconds, n in self.steps:
            ends += [clock + seconds * (i + 1) / n for i in range(n)]
            clock += seconds
        spans = [ends[i + span] - ends[i] for i in range(start, len(ends) - span)]
        return span * plain_s / max(spans)

    @property
    def speed(self) -> float:
        """Tokens a second."""
        return sum(n for _, n in self.steps) / self.seconds


class Guesser(Protocol):
    """What guesses on a trace: over the token of position ``at``. Seconds of an ask, and of a level if it costs
    passes."""

    @property
    def pass_s(self) -> float: ...

    @property
    def ask_s(self) -> float: ...

    def propose(self, name: str, at: int, price: Price) -> TokenTree: ...


def run(
    controller: Controller,
    sources: Mapping[str, Guesser],
    curve: Callable[[int], float],
    n: int,
    *,
    spec: SpecParams,
    text: Sequence[int] = range(1 << 20),
    host: float = 0.03,
    noise: float = 0.0,
    change: float = 0.0,
    stalls: float = 0.0,
    read: float = 0.0,
    before: int = 0,
    seed: int = 0,
    seq: int = 0,
    lag: int = 0,
) -> Run:
    """Decodes ``n`` tokens of ``text``, whose first is pending. A pass of one row takes ``curve(1)`` seconds, a step
    ``host`` more, a pass of another number of rows than the one before ``change`` more, a share of ``stalls`` thirty
    times as long. A row pays ``read`` for every cell of the context, of which ``before`` are there at the start. Who
    guesses by passes reads a prompt of ``lag`` tokens when it is asked first, five in the time of a pass."""
    rng = random.Random(seed)
    at, rows = 0, 1
    costly = _costly(sources)
    unread = {name: lag * (name in costly) for name in sources}
    steps: list[tuple[float, int]] = []
    while at < n:
        wish = Wish(seq, spec, Limits(64, 64, 64), at, unread, costly, n - at)
        (prices,) = controller.plan([wish])
        proposals, levels = asked(sources, prices, at)
        draft_s = {
            name: sources[name].pass_s * (n + unread[name] / 5) or sources[name].ask_s for name, n in levels.items()
        }
        unread = {name: 0 if name in levels else n for name, n in unread.items()}
        tree = controller.choose([wish], [proposals])[0] if proposals else TokenTree.root(text[at])
        wall = (curve(len(tree)) + len(tree) * read * (before + at)) * rng.lognormvariate(0, noise)
        wall += change * (len(tree) != rows)
        wall *= 30 if stalls and rng.random() < stalls else 1
        rows = len(tree)
        tokens = walked(tree, text, at)
        step = wall + sum(draft_s.values()) + host
        controller.observe(
            PassRecord(len(tree), before + at, wall, wall, draft_s, step), [Walk(seq, proposals, tree, tokens)]
        )
        steps.append((step, len(tokens)))
        at += len(tokens)
    return Run(steps)


def asked(
    sources: Mapping[str, Guesser], prices: Mapping[str, Price], at: int
) -> tuple[dict[str, TokenTree], dict[str, int]]:
    """What was guessed over the token of position ``at``, and how many levels each took that was asked; who costs
    passes comes last, and only where the others brought too little."""
    proposals: dict[str, TokenTree] = {}
    levels: dict[str, int] = {}
    for name, price in sorted(prices.items(), key=lambda item: item[1].until < math.inf):
        if any(prices[other].brought(tree) >= price.until for other, tree in proposals.items()):
            continue
        tree = price.limits.fit(sources[name].propose(name, at, price))
        levels[name] = max(tree.draft_n, 1)
        if tree.draft_n:
            proposals[name] = tree
    return proposals, levels


def walked(tree: TokenTree, text: Sequence[int], at: int) -> tuple[int, ...]:
    """The tokens that a step decides: ``text`` from behind ``at`` on, as far as ``tree`` has it, and one more."""
    tokens: list[int] = []
    node: int | None = 0
    while node is not None:
        tokens.append(text[at + len(tokens) + 1])
        node = tree.children[node].get(tokens[-1])
    return tuple(tokens)


def measured(curve: Callable[[int], float]) -> CostCurve:
    """What is known of ``curve`` when the passes of many sequences begin."""
    return CostCurve({rows: curve(rows) for rows in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)})


def alike(sequences: int, alphas: Sequence[float], *, passes: bool) -> list[dict[str, Guesser]]:
    """A drafter for each, with a luck of its own: of a model's passes on a GPU, or of looks into the past that find
    something half of the time."""
    pass_s, ask_s, has = (0.08, 0.0, 1.0) if passes else (0.0, 1e-3, 0.5)
    return [{"one": source(alphas, seed, pass_s=pass_s, ask_s=ask_s, has=has)} for seed in range(sequences)]


def run_many(
    controller: Controller,
    many: Sequence[Mapping[str, Guesser]],
    curve: Callable[[int], float],
    n: int,
    *,
    spec: SpecParams,
    rows: int = 512,
    host: float = 0.03,
    noise: float = 0.0,
) -> Run:
    """``n`` steps of as many sequences at a time as there are entries in ``many``, each with its drafters (of the same
    names) on a trace of its own. A pass has ``rows`` at most. A drafter that costs passes takes one a level for all who
    ask it."""
    rng = random.Random(0)
    text = range(1 << 20)
    at = [0] * len(many)
    room = rows // len(many) - 1
    guesses = 0
    steps: list[tuple[float, int]] = []
    for _ in range(n):
        wishes = [
            Wish(i, spec, Limits(room, room, room), at[i], dict.fromkeys(mine, 0), _costly(mine))
            for i, mine in enumerate(many)
        ]
        prices = controller.plan(wishes)
        found = _as_deep_as_pays([asked(mine, _free(prices[i]), at[i]) for i, mine in enumerate(many)], prices)
        draft_s = _seconds_of_drafts(many[0], [levels for _, levels in found])
        trees = [TokenTree.root(at[i]) for i in range(len(many))]
        some = [i for i, (proposals, _) in enumerate(found) if proposals]
        if some:
            chosen = controller.choose([wishes[i] for i in some], [found[i][0] for i in some])
            for i, tree in zip(some, chosen, strict=True):
                trees[i] = tree
        wall = curve(sum(map(len, trees))) * rng.lognormvariate(0, noise)
        walks = [Walk(i, found[i][0], tree, walked(tree, text, at[i])) for i, tree in enumerate(trees)]
        step = wall + sum(draft_s.values()) + host
        controller.observe(PassRecord(sum(map(len, trees)), sum(at), wall, wall, draft_s, step), walks)
        for i, walk in enumerate(walks):
            at[i] += len(walk.tokens)
        steps.append((step, sum(len(walk.tokens) for walk in walks)))
        guesses += sum(tree.draft_n for tree in trees)
    return Run(steps, guesses)


Found = tuple[dict[str, TokenTree], dict[str, int]]


def _free(prices: Mapping[str, Price]) -> dict[str, Price]:
    """As if passes cost nothing: how many pay is settled when it is seen who would share them."""
    return {name: replace(price, pass_s=0.0) for name, price in prices.items()}


def _as_deep_as_pays(found: Sequence[Found], prices: Sequence[Mapping[str, Price]]) -> list[Found]:
    """What is there of ``found`` when levels are shared, and end where they promise less than they cost."""
    deepest = dict[str, int]()
    for name in {name for _, levels in found for name in levels}:
        trees = [(proposals[name], prices[i][name]) for i, (proposals, _) in enumerate(found) if name in proposals]
        depth = 1
        while any(
            price.pass_pays(sum(_reach(tree, price, depth) for tree, price in trees if len(tree) > depth + 1))
            for _, price in trees
        ):
            depth += 1
        deepest[name] = depth
    return [
        (
            {name: tree.cut(deepest[name]) for name, tree in proposals.items()},
            {name: min(n, deepest[name]) for name, n in levels.items()},
        )
        for proposals, levels in found
    ]


def _reach(chain: TokenTree, price: Price, depth: int) -> float:
    return math.prod(map(price.believed, chain.scores[1 : depth + 1]))


def _costly(sources: Mapping[str, Guesser]) -> frozenset[str]:
    return frozenset(name for name, one in sources.items() if one.pass_s)


def _seconds_of_drafts(sources: Mapping[str, Guesser], levels: Sequence[Mapping[str, int]]) -> dict[str, float]:
    """Passes are shared, looks into the past are not."""
    return {
        name: max(mine.get(name, 0) for mine in levels) * one.pass_s
        if one.pass_s
        else sum(name in mine for mine in levels) * one.ask_s
        for name, one in sources.items()
        if any(name in mine for mine in levels)
    }
