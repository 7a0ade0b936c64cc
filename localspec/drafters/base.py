"""What the engine asks of a drafter: a tree of guesses for each sequence, and to keep up with what was accepted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from localspec.backends.base import Rows
from localspec.control.price import Price
from localspec.errors import UsageError
from localspec.grammar import Matcher
from localspec.sampling import Law, SamplerState
from localspec.spec.tree import TokenTree
from localspec.types import AcceptRule

#: Sources that come with another drafter, under its ``--spec-type`` and with books of their own.
CORPUS, EARLIER = "suffix-corpus", "earlier"
_PART_OF = {CORPUS: "suffix", EARLIER: "suffix"}

Features = Mapping[int, NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Ask:
    """One sequence that wants guesses.

    ``tokens`` is the whole text of the sequence, the pending token last: read it, do not keep it. ``state`` is the
    sampler's state for the first guessed position; its noise may be looked at. Under the rule ``ratio`` guesses
    must be *drawn* (and the laws handed over), or be certain. ``earlier`` are texts that the request thinks its answer
    may repeat: the same object as long as the request runs.
    """

    seq: int
    tokens: Sequence[int]
    price: Price
    state: SamplerState
    rule: AcceptRule = "draw"
    earlier: Sequence[Sequence[int]] = ()


@dataclass(frozen=True, slots=True)
class Draft:
    """A tree of guesses. ``laws[node]`` is the distribution that the children of ``node`` were drawn from, one
    after the other without replacement; a node without a law chose its children by itself. ``out`` says in one
    line why this drafter can guess no more for this sequence."""

    tree: TokenTree
    laws: Mapping[int, Law] = field(default_factory=dict)
    out: str | None = None

    def keep(self, nodes: Iterable[int]) -> Draft:
        """The draft without the other nodes, as `TokenTree.keep`. Where a node loses some but not all of its drawn
        children for being what they are, the rule ``ratio`` is no longer exact."""
        chosen = sorted({0, *nodes})
        laws = {new: self.laws[old] for new, old in enumerate(chosen) if old in self.laws}
        return Draft(self.tree.keep(chosen), laws, self.out)

    def within(self, grammar: Matcher) -> Draft:
        """The draft without guesses that ``grammar``, at the place after the pending token, does not allow. Drawn ones
        come from laws that leave them out."""
        if self.laws:
            return self
        places: dict[int, Matcher] = {0: grammar}
        for node in range(1, len(self.tree)):
            if (before := places.get(self.tree.parents[node])) is not None:
                try:
                    place = before.follow(self.tree.tokens[node])
                except UsageError:  # too complex there; if the text goes that way it fails, guess or no guess
                    continue
                if place is not None:
                    places[node] = place
        return self if len(places) == len(self.tree) else self.keep(places)

    def usable(self, min_depth: int, end_tokens: Collection[int]) -> Draft:
        """The draft without guesses behind an end token, and none at all if it is shorter than ``min_depth``.

        Drawn guesses are never dropped for being short: what becomes of a draft may not depend on what was drawn.
        """
        tree = self.tree
        buried: set[int] = set()
        for node in range(1, len(tree)):
            parent = tree.parents[node]
            if parent in buried or (parent and tree.tokens[parent] in end_tokens):
                buried.add(node)
        draft = self.keep(node for node in range(len(tree)) if node not in buried) if buried else self
        if not draft.laws and draft.tree.draft_n and max(draft.tree.depths) < min_depth:
            return Draft(TokenTree.root(tree.tokens[0]))
        return draft

    @classmethod
    def nothing(cls, ask: Ask, out: str | None = None) -> Draft:
        return cls(TokenTree.root(ask.tokens[-1]), out=out)


def spec_type(name: str) -> str:
    """The ``--spec-type`` that a drafter belongs to."""
    return _PART_OF.get(name, name)


class Drafter(Protocol):
    """A source of guesses. State belongs to the sequence: ``open`` to ``close`` is one conversation."""

    @property
    def name(self) -> str:
        """Its name in the books: its ``--spec-type``, or that of a source that comes with one (`spec_type`)."""
        ...

    @property
    def needs(self) -> tuple[int, ...]:
        """Layers of the target whose hidden states it reads; () for most."""
        ...

    @property
    def costs_passes(self) -> bool:
        """Whether guesses cost passes of a model, and so are worth a second thought."""
        ...

    def open(self, seq: int) -> None: ...

    def fork(self, seq: int, new: int, n: int) -> None:
        """``new`` starts as the first ``n`` tokens of ``seq``."""
        ...

    def close(self, seq: int) -> None: ...

    def prefill(self, seq: int, start: int, tokens: Sequence[int], features: Features) -> None:
        """The target has read ``tokens`` (a piece of prompt) from position ``start`` on. Features are views: copy or
        consume."""
        ...

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        """One draft an ask, over the pending token as root. A root alone means: no guess."""
        ...

    def observe(self, seq: int, start: int, tree: TokenTree, path: Sequence[int], rows: Rows) -> None:
        """The target has verified ``tree``, its root at position ``start``, and kept the root and ``path`` of it (fewer
        than the walk accepted where the answer was cut). All rows may be read, rejected ones too; the target must not
        be called, since rows of other sequences are yet to be read."""
        ...

    def truncate(self, seq: int, n: int) -> None:
        """Only the first ``n`` tokens of the sequence still stand."""
        ...

    def lag(self, seq: int, n_past: int) -> int:
        """How many of the ``n_past`` committed tokens it has yet to read before it can guess."""
        ...

    def gap(self, seq: int, n_past: int) -> int:
        """How many of these it cannot read, for want of the hidden states that it `needs`: only the target can mend
        that, and the engine has it read them again when the next prompt comes."""
        ...

    def interrupt(self, on: bool) -> None:
        """From any thread, as `Target.interrupt`: ``propose`` gives up with `Cancelled`."""
        ...

    def set_threads(self, n: int) -> None: ...

    def close_all(self) -> None: ...


class TextDrafter:
    """What drafters have in common that read nothing but the text of their own conversation, when they are asked: they
    cost no passes, keep up with nothing, and have nothing to interrupt."""

    name: str
    needs: tuple[int, ...] = ()
    costs_passes = False

    def open(self, seq: int) -> None:
        raise NotImplementedError

    def fork(self, seq: int, new: int, n: int) -> None:
        # The new conversation reads its own text at the first guess; sharing would leak what came after the fork.
        self.open(new)

    def prefill(self, seq: int, start: int, tokens: Sequence[int], features: Features) -> None:
        pass

    def observe(self, seq: int, start: int, tree: TokenTree, path: Sequence[int], rows: Rows) -> None:
        pass

    def lag(self, seq: int, n_past: int) -> int:
        return 0

    def gap(self, seq: int, n_past: int) -> int:
        return 0

    def interrupt(self, on: bool) -> None:
        pass

    def set_threads(self, n: int) -> None:
        pass

    def close_all(self) -> None:
        pass
