"""Engines that break the promise, so that somebody notices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from localspec.backends.base import Rows, Work
from localspec.backends.fake import FakeTarget
from localspec.engine import answer
from localspec.spec.accept import Acceptance
from localspec.spec.tree import TokenTree

FAULT = "LOCALSPEC_TEST_FAULT"


def accept_first_guess(tree: TokenTree, state: Any, draw: Callable[[Any, int], int], advance: Any) -> Acceptance:
    """Takes the first guess, whatever the target draws, then goes on as it should."""
    child = next(iter(tree.children[0].values()), None)
    if child is None:
        return Acceptance((), (draw(state, 0),), 0)
    token = tree.tokens[child]
    return Acceptance((child,), (token, draw(advance(state, 0, token), child)), 1)


def accept_all(tree: TokenTree, state: Any, target: Callable[[Any, int], Any], advance: Any) -> Acceptance:
    """The rule ``ratio`` without its test."""
    node, path, tokens = 0, list[int](), list[int]()
    while kids := tree.children[node]:
        token, child = next(iter(kids.items()))
        path.append(child)
        tokens.append(token)
        node, state = child, advance(state, node, token)
    return Acceptance(tuple(path), (*tokens, target(state, node).draw()), len(path))


def break_as_asked(environment: Mapping[str, str]) -> None:
    """For a process of its own: nothing is mended afterwards."""
    if environment.get(FAULT) == "draw":
        setattr(answer, "accept_by_draw", accept_first_guess)  # noqa: B010


class Leaking(FakeTarget):
    """Rows of a tree see more than their branch: a wrong mask."""

    def forward(self, work: Sequence[Work]) -> list[Rows]:
        rows = super().forward(work)
        return [Leaked(one) if item.rows_from == 0 and not item.tree.is_chain else one for item, one in zip(work, rows)]  # noqa: B905


class Leaked:
    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def logits(self, node: int) -> Any:
        row = self._rows.logits(node).copy()
        return row[::-1].copy() if node else row

    def draw(self, node: int, state: Any) -> int:
        return int(state.draw(self.logits(node)))

    @property
    def features(self) -> Any:
        return self._rows.features


class Rounding(FakeTarget):
    """Rows move a little with the shape of their pass, as on quantised weights."""

    def __init__(self, *args: Any, by: float, **options: Any) -> None:
        super().__init__(*args, **options)
        self._by = by

    def forward(self, work: Sequence[Work]) -> list[Rows]:
        return [Moved(rows, self._by * len(item.tree)) for item, rows in zip(work, super().forward(work), strict=True)]


class Moved(Leaked):
    def __init__(self, rows: Rows, by: float) -> None:
        super().__init__(rows)
        self._by = by

    def logits(self, node: int) -> Any:
        row = self._rows.logits(node).copy()
        row[::2] += self._by
        return row
