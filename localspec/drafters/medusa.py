"""``draft-medusa``: heads on the target's last hidden state, each of which guesses one position further on (Medusa,
arXiv 2401.10774). ``draft-hydra``: heads that also read what was guessed for the positions before (Hydra, arXiv
2402.05109).

The state behind the last committed token is all they read: it comes with every pass of the target, and nothing is kept
in step but it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from localspec.backends.base import NORMED, Row, Rows, Work
from localspec.drafters.base import Ask, Draft, Features
from localspec.drafters.files import HYDRA, MEDUSA
from localspec.drafters.growth import Growth, worth_a_pass
from localspec.drafters.options import Shape
from localspec.drafters.positions import Guess, Positions, grow
from localspec.spec.tree import TokenTree
from localspec.vocab import Pairing

State = NDArray[np.float32]

# What a head is thought to guess right before it was seen: its best guess, and how this falls off with the position
# and with the rank of the guess; and how many guesses that opinion is worth.
_BEST, _BY_POSITION, _BY_RANK, _WORTH = 0.6, 0.8, 0.3, 8.0


class MedusaHeads(Protocol):
    """``n`` heads; none knows what another guesses. ``at_once``: all rows together cost little more than one."""

    @property
    def n(self) -> int: ...

    @property
    def at_once(self) -> bool: ...

    def rows(self, heads: range, state: State) -> NDArray[np.float32]:
        """``[len(heads), n_vocab]``: scores by head n of what stands n places behind the token that follows the pending
        one; ``state`` ``[width]`` is the target's behind the token before the pending one."""
        ...

    def set_threads(self, n: int) -> None: ...


class HydraHeads(Protocol):
    """``n`` heads; each reads the tokens guessed so far."""

    @property
    def n(self) -> int: ...

    def forward(self, work: Work) -> Rows:
        """Rows of the nodes of ``work`` that are computed now: nodes of one level of a tree rooted at the pending
        token. ``work.states`` is ``[1, width]``, the target's state behind the token before that."""
        ...

    def set_threads(self, n: int) -> None: ...


class _OnState:
    """What drafters have in common that read the target's last state."""

    needs = (NORMED,)
    costs_passes = True

    def __init__(self, heads: MedusaHeads | HydraHeads, pairing: Pairing) -> None:
        self._threads = heads.set_threads
        self._pairing = pairing
        self._states: dict[int, tuple[int, State]] = {}  # tokens read, the state behind the last of them

    def open(self, seq: int) -> None:
        pass

    def fork(self, seq: int, new: int, n: int) -> None:
        if self._n(seq) == n:
            self._states[new] = self._states[seq]

    def close(self, seq: int) -> None:
        self._states.pop(seq, None)

    def prefill(self, seq: int, start: int, tokens: Sequence[int], features: Features) -> None:
        self._states[seq] = (start + len(tokens), features[NORMED][-1].copy())

    def observe(self, seq: int, start: int, tree: TokenTree, path: Sequence[int], rows: Rows) -> None:
        last = path[-1] if path else 0
        self._states[seq] = (start + 1 + len(path), rows.features[NORMED][last].copy())

    def truncate(self, seq: int, n: int) -> None:
        if self._n(seq) > n:
            self.close(seq)

    def lag(self, seq: int, n_past: int) -> int:
        return self.gap(seq, n_past)

    def gap(self, seq: int, n_past: int) -> int:
        # The last token is all that is ever missing.
        return min(n_past, int(self._n(seq) != n_past))

    def _n(self, seq: int) -> int:
        return self._states[seq][0] if seq in self._states else -1

    def _state(self, ask: Ask) -> State | None:
        """The state behind the token before the pending one; ``None``: it is not known."""
        return self._states[ask.seq][1] if self._n(ask.seq) == len(ask.tokens) - 1 else None

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        states = [self._state(ask) for ask in asks]
        return [
            Draft.nothing(ask) if state is None else self._draft(ask, state)
            for ask, state in zip(asks, states, strict=True)
        ]

    def _draft(self, ask: Ask, state: State) -> Draft:
        raise NotImplementedError

    def interrupt(self, on: bool) -> None:
        pass

    def set_threads(self, n: int) -> None:
        self._threads(n)

    def close_all(self) -> None:
        self._states.clear()


class Medusa(_OnState):
    """Guesses along the heads. A ``dynamic`` tree follows what they say; a ``static`` one has the shape that fits how
    often each rank of each head was right so far, whatever they say now."""

    name = MEDUSA

    def __init__(self, heads: MedusaHeads, pairing: Pairing, shape: Shape = "dynamic") -> None:
        super().__init__(heads, pairing)
        self._heads = heads
        self._ranks = Ranks() if shape == "static" else None
        self._asked: dict[int, tuple[int, Positions]] = {}  # where the guesses begin, and they

    def close(self, seq: int) -> None:
        super().close(seq)
        self._asked.pop(seq, None)

    def _draft(self, ask: Ask, state: State) -> Draft:
        depth = min(ask.price.limits.depth, self._heads.n)
        ready = depth if self._heads.at_once else 1
        known = self._heads.rows(range(ready), state)

        def row(head: int) -> Row:
            row: Row = known[head] if head < ready else self._heads.rows(range(head, head + 1), state)[0]
            return row

        positions = Positions(ask, row, self._pairing)
        if self._ranks is None:
            return grow(ask, positions, depth, self.name, ready=ready)
        self._learn(ask)
        self._asked[ask.seq] = len(ask.tokens), positions
        return grow(ask, positions, depth, self.name, ready=ready, weigh=self._ranks.weigh)

    def _learn(self, ask: Ask) -> None:
        """What has come of the last guesses is in the text by now."""
        start, positions = self._asked.pop(ask.seq, (0, None))
        if positions is not None and self._ranks is not None:
            came = ask.tokens[start : start + len(positions.found)]
            for position, (token, guesses) in enumerate(zip(came, positions.found, strict=False)):
                self._ranks.saw(position, [guess for guess, _ in guesses], token)

    def truncate(self, seq: int, n: int) -> None:
        super().truncate(seq, n)
        self._asked.pop(seq, None)


class Ranks:
    """How often the guess of each rank of each head was the right one, where those before it were."""

    def __init__(self) -> None:
        self._right: dict[tuple[int, int], int] = {}
        self._seen: dict[tuple[int, int], int] = {}

    def saw(self, head: int, guesses: Sequence[int], token: int) -> None:
        for rank, guess in enumerate(guesses):
            self._seen[head, rank] = self._seen.get((head, rank), 0) + 1
            self._right[head, rank] = self._right.get((head, rank), 0) + (guess == token)

    def chance(self, head: int, rank: int) -> float:
        before = _BEST * _BY_POSITION**head * _BY_RANK**rank
        seen, right = self._seen.get((head, rank), 0), self._right.get((head, rank), 0)
        return (before * _WORTH + right) / (_WORTH + seen)

    def weigh(self, head: int, guesses: Sequence[Guess]) -> list[Guess]:
        return [(token, self.chance(head, rank)) for rank, (token, _) in enumerate(guesses)]


class Hydra(_OnState):
    """Guesses along the heads, one pass a level, as `DraftModel` does."""

    name = HYDRA

    def __init__(self, heads: HydraHeads, pairing: Pairing) -> None:
        super().__init__(heads, pairing)
        self._heads = heads

    def _draft(self, ask: Ask, state: State) -> Draft:
        depth = min(ask.price.limits.depth, self._heads.n)
        growth = Growth(ask, [ask.tokens[-1]], depth, self._pairing, self.name, ask.price.limits.nodes)
        growing = [growth] if depth else []
        while growing:
            work = growth.work(ask.seq)
            growth.take(self._heads.forward(Work(ask.seq, work.tree, work.done, work.rows_from, states=state[None])))
            growing = worth_a_pass(growing)
        return growth.draft()
