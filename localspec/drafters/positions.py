"""Trees over positions that were guessed apart: what may stand at one does not depend on what stands before it.

Medusa's heads and the masks of a parallel draft model give one row of scores a position. The chance of a path is then
the product of the chances of its guesses, and the best tree of n nodes is grown best first, exactly.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from localspec.backends.base import Row
from localspec.drafters.base import Ask, Draft
from localspec.drafters.growth import without
from localspec.sampling import Law
from localspec.spec.tree import TokenTree
from localspec.vocab import Pairing

#: A guess for a position: token, the chance that it holds.
Guess = tuple[int, float]
#: Puts the guesses for a position (0 = behind the pending token), best first, at chances of its own.
Weigh = Callable[[int, Sequence[Guess]], Sequence[Guess]]


class Positions:
    """What may stand at each position behind the pending token, worked out when it is first asked for.

    Samplers that look at the text (penalties, grammars) see the likeliest path as what stands before a position.

    Args:
        ask: whose guesses they are.
        row: scores for the position n places behind the pending token's next, by the draft's ids ``[n_vocab]``.
        pairing: with the target's vocabulary.
    """

    def __init__(self, ask: Ask, row: Callable[[int], Row], pairing: Pairing) -> None:
        self._row = row
        self._pairing = pairing
        self._width = ask.price.limits.width
        self._states = [ask.state]
        self._guesses: list[tuple[Guess, ...]] = []
        self._laws: list[Law] = []

    @property
    def found(self) -> Sequence[tuple[Guess, ...]]:
        """The guesses that were asked for so far, by position."""
        return self._guesses

    def guesses(self, position: int) -> tuple[Guess, ...]:
        """The likeliest tokens, best first. Positions are asked for in order."""
        if position == len(self._guesses):
            state, pairing = self._states[position], self._pairing
            row = pairing.row(self._row(position))
            found = state.guesses(row, self._width, allowed=pairing.common)
            self._guesses.append(tuple(guess for guess in found if pairing.draft_id(guess[0]) is not None))
            if self._guesses[-1]:
                self._states.append(state.advance(self._guesses[-1][0][0]))
        return self._guesses[position]

    def law(self, position: int) -> Law:
        """What guesses are drawn from under the rule ``ratio``. Positions are asked for in order."""
        if position == len(self._laws):
            state, pairing = self._states[position], self._pairing
            law = state.draft_law(pairing.row(self._row(position)), allowed=pairing.common)
            self._laws.append(without(law, pairing.barred) if pairing.barred else law)
            self._states.append(state.advance(int(law.ids[int(np.argmax(law.logp))])))
        return self._laws[position]

    def draws(self, position: int, n: int, *, salt: int) -> list[Guess]:
        """``n`` tokens drawn from the law, without replacement."""
        law = self.law(position)
        return list(law.draws(self._states[position].draft_noise(law.ids, salt=salt), n))


def grow(
    ask: Ask, positions: Positions, depth: int, source: str, *, ready: int = 1, weigh: Weigh | None = None
) -> Draft:
    """The best tree of up to ``depth`` positions within what ``ask`` allows.

    Args:
        ready: positions whose rows cost nothing more; each further one has to pay for a pass.
        weigh: other chances than the guesses come with; not where they are drawn.
    """
    growing = _Growing(ask, positions, depth, source, ready, weigh)
    if ask.rule == "ratio" and not ask.state.greedy:
        growing.draw()
    else:
        growing.pick()
    return growing.draft()


class _Growing:
    def __init__(
        self, ask: Ask, positions: Positions, depth: int, source: str, ready: int, weigh: Weigh | None
    ) -> None:
        self._price, self._limits = ask.price, ask.price.limits
        self._positions = positions
        self._depth = min(depth, self._limits.depth)
        self._source = source
        self._ready = ready
        self._weigh = weigh
        self._laws: dict[int, Law] = {}
        self._tokens, self._parents, self._scores = [ask.tokens[-1]], [-1], [1.0]
        self._spare = self._limits.nodes if self._limits.leaves is None else self._limits.leaves - 1
        self._extended: set[int] = set()

    def pick(self) -> None:
        """Takes the likeliest of all candidates, again and again; those behind it become candidates then."""
        # -reach, order of coming, parent, position, guess: the first of equals stays first.
        waiting: list[tuple[float, int, int, int, Guess]] = []
        came = 0
        fresh = (1.0, 0, 0)  # reach, node, position behind it
        while True:
            reach, node, position = fresh
            if self._is_open(position, reach, (-one[0] for one in waiting if one[3] == position - 1)):
                for guess in self._candidates(position):
                    believed = reach * self._price.believed(guess[1])
                    if guess[1] >= self._limits.p_min and self._price.pays(believed):
                        heapq.heappush(waiting, (-believed, came, node, position, guess))
                        came += 1
            taken = self._take(waiting)
            if taken is None:
                return
            fresh = taken

    def _take(self, waiting: list[tuple[float, int, int, int, Guess]]) -> tuple[float, int, int] | None:
        while waiting and len(self._tokens) <= self._limits.nodes:
            minus_reach, _, parent, position, guess = heapq.heappop(waiting)
            if parent in self._extended:
                if self._spare < 1:
                    continue
                self._spare -= 1
            self._extended.add(parent)
            return -minus_reach, self._add(parent, guess), position + 1
        return None

    def _candidates(self, position: int) -> Sequence[Guess]:
        guesses = self._positions.guesses(position)
        return guesses if self._weigh is None else self._weigh(position, guesses)

    def draw(self) -> None:
        """Draws children of the likeliest node, again and again. How many is settled before: leaving out what was drawn
        for being what it is would bend the distribution."""
        limits = self._limits
        waiting = [(-1.0, 0, 0)]
        while waiting and (room := limits.nodes - len(self._tokens) + 1):
            minus_reach, node, position = heapq.heappop(waiting)
            beside = (-one[0] for one in waiting if one[2] == position)
            if not self._is_open(position, -minus_reach, beside) or not self._price.pays(-minus_reach):
                continue
            law = self._positions.law(position)
            if float(np.exp(law.logp.max())) < limits.p_min:
                continue
            self._laws[node] = law
            drawn = self._positions.draws(position, min(limits.width, room, self._spare + 1), salt=node)
            self._spare -= max(len(drawn) - 1, 0)
            for guess in drawn:
                believed = -minus_reach * self._price.believed(guess[1])
                heapq.heappush(waiting, (-believed, self._add(node, guess), position + 1))

    def _is_open(self, position: int, reach: float, beside: Iterable[float]) -> bool:
        """Whether guesses for a position are looked at. ``reach`` is that of a node that they could stand behind, and
        ``beside`` those of the others."""
        if self._ready <= position < self._depth:
            if self._price.pass_pays(reach + sum(beside)):
                self._ready = position + 1
            else:
                self._depth = position
        return position < self._depth

    def _add(self, parent: int, guess: Guess) -> int:
        self._tokens.append(guess[0])
        self._parents.append(parent)
        self._scores.append(guess[1])
        return len(self._tokens) - 1

    def draft(self) -> Draft:
        sources = ("",) + (self._source,) * (len(self._tokens) - 1)
        return Draft(TokenTree.grown(self._tokens, self._parents, self._scores, sources), self._laws)
