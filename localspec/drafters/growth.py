"""One tree while it grows in a draft model's cache."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from localspec.backends.base import Extent, Level, Row, Rows, Work
from localspec.drafters.base import Ask, Draft
from localspec.drafters.translation import Translation
from localspec.sampling import Law
from localspec.sampling.filters import require_finite
from localspec.spec.tree import TokenTree
from localspec.vocab import Pairing


class Growth:
    """Candidates of one sequence, level by level.

    There is no rule for entropy (deep where the draft is sure, wide where it is not): within the limits prices say the
    same. Where one child has all the probability no sibling pays for its row, and another pass does; where many share
    it several pay, and soon no pass does.

    Two trees live side by side. The *guesses*: every candidate in the target's tokens, rooted at the pending token. The
    *decoded* nodes in the draft model's: the text that it has yet to read (to the end of the pending token), then those
    guesses that were grown further, in the order they went into its cache, over ``branches`` branches at most.
    """

    def __init__(
        self,
        ask: Ask,
        unread: Sequence[int],
        depth: int,
        pairing: Pairing | Translation,
        source: str,
        branches: int,
    ) -> None:
        self.ask = ask
        self._depth = depth
        self._pairing = pairing
        self._source = source
        self._free_branches = branches - 1  # the first child of a node runs on in its parent's branch
        self._leaves = 1  # branches of the guesses, counted where they are drawn
        self._draws = ask.rule == "ratio" and not ask.state.greedy
        self._laws: dict[int, Law] = {}
        self._states = {0: ask.state}  # decoded guess → the sampler's state after it
        self._tokens, self._parents, self._scores = [ask.tokens[-1]], [-1], [1.0]
        self._reach, self._depths = [1.0], [0]
        self._n_unread = len(unread)
        self._in_cache = list(unread)
        self._cache_parents = list(range(-1, len(unread) - 1))
        self._cache_scores = [1.0] * len(unread)
        self._home = {0: len(unread) - 1}  # guess → its index among the decoded nodes
        self._frontier = [0]  # guesses whose rows come with the next pass
        self._next: list[int] = []  # those that could come with the one after
        self._done = 0  # decoded nodes of earlier passes

    @property
    def promise(self) -> float:
        """The tokens that another pass could bring: the sum of the chances that the walk gets to what it would read."""
        return sum([self._reach[node] for node in self._next])

    def work(self, lane: int) -> Work:
        sources = ("",) * len(self._in_cache)
        tree = TokenTree.grown(self._in_cache, self._cache_parents, self._cache_scores, sources)
        return Work(lane, tree, done=self._done, rows_from=max(self._done, self._n_unread - 1))

    def take(self, rows: Rows) -> None:
        """Reads the rows of a pass: the children of the frontier, and which of them could be the next frontier."""
        self._done = len(self._in_cache)
        fresh: list[int] = []
        for node in self._frontier:
            for token, score, reach in self._children(node, self._row(rows, node)):
                fresh.append(self._add(node, token, score, reach))
        limits = self.ask.price.limits
        self._next = []
        if self._may_go_on(fresh):
            self._next = sorted(fresh, key=lambda node: (-self._reach[node], node))[: limits.width]

    def _may_go_on(self, fresh: Sequence[int]) -> bool:
        """Whether the limits leave anything to another level, behind ``fresh`` guesses."""
        limits = self.ask.price.limits
        deeper = bool(fresh) and self._depths[fresh[0]] < self._depth
        return deeper and len(self._tokens) - 1 < limits.nodes * limits.width

    @property
    def extent(self) -> Extent | None:
        """How far a model is to grow the tree by itself; ``None``: guesses are not what it would choose."""
        price, limits = self.ask.price, self.ask.price.limits
        if not self.ask.state.likeliest:
            return None
        # So many levels hold all guesses that there may be, if none is left out.
        most = 1 - (1 - limits.nodes) // limits.width
        leaves_out = limits.p_min > 0 or price.row_s > 0
        return Extent(self._depth if leaves_out else min(self._depth, most), limits.width, limits.p_min)

    def follow(self, levels: Sequence[Level]) -> None:
        """Takes the levels that a model has grown by itself, as `take` does those of passes. They are there, whatever a
        pass costs: what is left out are guesses that are not worth a row, and what stands behind them."""
        self._done = self._n_unread
        read: list[int | None] = [0]
        for level in levels:
            fresh = self._taken(level, read)
            read = [fresh.get(place) for place in level.onward[: self.ask.price.limits.width].tolist()]
            if not self._may_go_on([*fresh.values()]):
                break

    def _taken(self, level: Level, read: Sequence[int | None]) -> dict[int, int]:
        """Guesses of a level that are worth their rows, by their places in it; ``read`` are those that it has read."""
        width, columns = self.ask.price.limits.width, level.tokens.shape[1]
        fresh: dict[int, int] = {}
        for row, (node, tokens, scores) in enumerate(zip(read, level.tokens, level.scores, strict=False)):
            if node is not None:
                require_finite(scores.item(0))
                for rank, guess in enumerate(zip(tokens[:width].tolist(), scores[:width].tolist(), strict=True)):
                    for child in self._worthwhile(node, [guess]):
                        fresh[row * columns + rank] = self._add(node, *child)
        return fresh

    def go_on(self) -> None:
        """Another pass is made."""
        self._frontier = self._grow_on(self._next)

    def _row(self, rows: Rows, node: int) -> Row:
        """Of a pass, the row behind ``node``."""
        return rows.logits(self._home[node])

    def _grow_on(self, likeliest: Sequence[int]) -> list[int]:
        """Decodes guesses of a level, as many as there are branches for."""
        grown: list[int] = []
        extended: set[int] = set()
        for node in likeliest:
            parent = self._parents[node]
            if parent in extended:
                if self._free_branches < 1:
                    continue
                self._free_branches -= 1
            extended.add(parent)
            self._decode(node)
            grown.append(node)
        return grown

    def _children(self, node: int, row: Row) -> list[tuple[int, float, float]]:
        """The children worth keeping under ``node``, best first: token, score, and the chance that the walk gets
        there."""
        price, reach = self.ask.price, self._reach[node]
        if self._draws:
            return [(token, score, reach * price.believed(score)) for token, score in self._drawn_children(node, row)]
        pairing = self._pairing
        guesses = self._states[node].guesses(pairing.row(row), price.limits.width, allowed=pairing.common)
        return self._worthwhile(node, self._scored(node, guesses))

    def _worthwhile(self, node: int, guesses: Sequence[tuple[int, float]]) -> list[tuple[int, float, float]]:
        """Those of the ``guesses`` behind ``node`` that are worth their rows, as `_children`."""
        price, reach = self.ask.price, self._reach[node]
        children = []
        for token, score in guesses:
            believed = reach * price.believed(score)
            if score >= price.limits.p_min and price.pays(believed) and self._pairing.draft_id(token) is not None:
                children.append((token, score, believed))
        return children

    def _scored(self, node: int, guesses: Sequence[tuple[int, float]]) -> Sequence[tuple[int, float]]:
        """The guesses behind ``node``, best first, with the chance that each holds."""
        return guesses

    def _drawn_children(self, node: int, row: Row) -> list[tuple[int, float]]:
        """Children drawn from the draft's law. How many is settled before anything is drawn: leaving out what was drawn
        for being what it is would bend the distribution."""
        limits, state = self.ask.price.limits, self._states[node]
        law = state.draft_law(self._pairing.row(row), allowed=self._pairing.common)
        room = limits.nodes - (len(self._tokens) - 1)
        if limits.leaves is not None:
            room = min(room, limits.leaves - self._leaves + 1)
        if room < 1 or float(np.exp(law.logp.max())) < limits.p_min or not self.ask.price.pays(self._reach[node]):
            return []
        if self._pairing.barred:
            law = without(law, self._pairing.barred)
        self._laws[node] = law
        drawn = list(law.draws(state.draft_noise(law.ids, salt=node), min(limits.width, room)))
        self._leaves += max(len(drawn) - 1, 0)
        return drawn

    def _add(self, parent: int, token: int, score: float, reach: float) -> int:
        self._tokens.append(token)
        self._parents.append(parent)
        self._scores.append(score)
        self._reach.append(reach)
        self._depths.append(self._depths[parent] + 1)
        return len(self._tokens) - 1

    def _decode(self, node: int) -> None:
        self._states[node] = self._states[self._parents[node]].advance(self._tokens[node])
        self._home[node] = len(self._in_cache)
        token = self._pairing.draft_id(self._tokens[node])
        assert token is not None, "only what it can spell is guessed"
        self._in_cache.append(token)
        self._cache_parents.append(self._home[self._parents[node]])
        self._cache_scores.append(self._scores[node])

    def draft(self) -> Draft:
        sources = ("",) + (self._source,) * (len(self._tokens) - 1)
        tree = TokenTree.grown(self._tokens, self._parents, self._scores, sources)
        # Drawn children are all proposed: `_drawn_children` keeps to the limit itself.
        limits = self.ask.price.limits
        return Draft(tree if self._draws else tree.top(limits.nodes, limits.leaves), self._laws)

    def decoded_path(self, tokens: Sequence[int]) -> list[int]:
        """The decoded nodes that hold the unread text and, after the pending token, as much of ``tokens`` as was
        decoded."""
        children = {(self._cache_parents[i], self._in_cache[i]): i for i in range(self._done)}
        path = list(range(min(self._n_unread, self._done)))
        for token in tokens:
            name = self._pairing.draft_id(token)
            if name is None or (path[-1], name) not in children:
                break
            path.append(children[path[-1], name])
        return path

    def guesses_in(self, path: Sequence[int]) -> int:
        """How many decoded nodes of ``path`` are guesses."""
        return sum(node >= self._n_unread for node in path)

    def spelt(self, path: Sequence[int]) -> list[int]:
        """The draft model's tokens of decoded nodes."""
        return [self._in_cache[node] for node in path]


def worth_a_pass(growths: Sequence[Growth]) -> list[Growth]:
    """Those that go on by another pass, which is one for all of them: while together they promise more than it costs.
    A tree that is deeper than the others ends where its own promise does not carry the pass alone."""
    able = [growth for growth in growths if growth.promise > 0]
    promise = sum([growth.promise for growth in able])
    if not any(growth.ask.price.pass_pays(promise) for growth in able):
        return []
    for growth in able:
        growth.go_on()
    return able


def without(law: Law, barred: frozenset[int]) -> Law:
    """The law, given that no token of ``barred`` comes."""
    keep = ~np.isin(law.ids, list(barred))
    logp = law.logp[keep]
    return Law(law.ids[keep], logp - np.log(np.exp(logp).sum()))
