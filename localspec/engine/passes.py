"""Passes of the target: trees that are verified, and pieces of prompts that are read beside them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from localspec.backends.base import Rows, Target, Work
from localspec.drafters.base import Draft
from localspec.engine.answer import Answer
from localspec.errors import OutOfMemory
from localspec.spec.tree import TokenTree


class Piece(NamedTuple):
    """A piece of a prompt, and whose it is."""

    answer: Answer
    work: Work


@dataclass(frozen=True, slots=True)
class Pass:
    """``rows`` are those of ``drafts``, ``read`` those of ``pieces``. Seconds of wall and CPU time are of all of it."""

    drafts: Sequence[Draft] = ()
    rows: Sequence[Rows] = ()
    pieces: Sequence[Piece] = ()
    read: Sequence[Rows] = ()
    wall_s: float = 0.0
    cpu_s: float = 0.0

    @property
    def n_rows(self) -> int:
        """Of trees."""
        return sum(len(draft.tree) for draft in self.drafts)

    @property
    def guesses(self) -> int:
        return self.n_rows - len(self.drafts)

    @property
    def beside(self) -> int:
        """Rows of prompts."""
        return sum(len(piece.work.tree) for piece in self.pieces)


class Passes:
    """Makes them, and counts.

    Attributes:
        last: the last one.
        count: how many there were.
        prompt_computed: rows of prompts in all of them.

    Args:
        needs: layers whose hidden states are wanted of every row.
    """

    def __init__(self, target: Target, needs: tuple[int, ...]) -> None:
        self._target = target
        self._needs = needs
        self.last = Pass()
        self.count = self.prompt_computed = 0

    def read(self, pieces: Sequence[Piece]) -> Pass:
        """A pass that reads prompts and nothing else."""
        return self._forward((), (), pieces)

    def verify(self, answers: Sequence[Answer], drafts: Sequence[Draft], pieces: Sequence[Piece]) -> Pass:
        """One pass over all trees and pieces of prompts; where the cache has no room for them, over the pending tokens
        and the pieces, and in the end over the pending tokens alone.

        Raises:
            EngineError, OutOfMemory: as `Target.forward`.
        """
        try:
            return self._forward(answers, drafts, pieces)
        except OutOfMemory:
            drafts = [Draft(TokenTree.root(draft.tree.tokens[0])) for draft in drafts]
        if pieces:
            try:
                return self._forward(answers, drafts, pieces)
            except OutOfMemory:
                pass
        return self._forward(answers, drafts, ())

    def _forward(self, answers: Sequence[Answer], drafts: Sequence[Draft], pieces: Sequence[Piece]) -> Pass:
        trees = [Work(a.slot.seq, draft.tree, features=self._needs) for a, draft in zip(answers, drafts, strict=True)]
        wall, cpu = time.perf_counter(), time.process_time()
        rows = self._target.forward([*trees, *(piece.work for piece in pieces)])
        wall_s, cpu_s = time.perf_counter() - wall, time.process_time() - cpu
        self.last = Pass(drafts, rows[: len(trees)], pieces, rows[len(trees) :], wall_s, cpu_s)
        self.count += 1
        self.prompt_computed += self.last.beside
        return self.last
