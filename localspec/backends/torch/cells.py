"""One pool of cells for keys and values of all texts. A cell holds those of one token, in all layers.

Which cells a text has its tokens in, and in which order, its table says. So texts share the cells of a common
beginning, and of a tree any nodes can stay: the table is rewritten, and no row moves. The price is paid by attention,
which wants its rows one behind the other: they are copied for a pass, layer by layer, unless the table names cells that
lie so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from localspec.backends.torch.attention import Heads, mixed
from localspec.backends.torch.places import Places
from localspec.backends.torch.sizes import Sizes
from localspec.spec.tree import TokenTree

Table = NDArray[np.int64]
Seen = NDArray[np.bool_]


class Cells:
    """``room`` cells, of which each layer's part lies where the layer does. ``device`` is that of the first layer."""

    def __init__(self, sizes: Sizes, room: int, places: Places) -> None:
        self.sizes, self.room, self.device = sizes, room, places.of_layer(0).device
        size = (sizes.kv_heads, room, sizes.each)
        # Memory is taken page by page, as cells are written; so the first free ones are taken.
        each = map(places.of_layer, range(sizes.layers))
        self.layers = [[torch.zeros(size, device=one.device, dtype=one.dtype) for _ in range(2)] for one in each]
        self._users = np.zeros(room, np.int32)

    @property
    def free(self) -> int:
        return self.room - int(np.count_nonzero(self._users))

    @property
    def bytes(self) -> tuple[int, ...]:
        """Of all cells, by layer."""
        return tuple(sum(int(part.nbytes) for part in layer) for layer in self.layers)

    def take(self, n: int) -> Table:
        """So many free cells, which must be there."""
        found = np.flatnonzero(self._users == 0)[:n]
        self._users[found] = 1
        return found

    def share(self, cells: Table) -> None:
        """One more text has them."""
        self._users[cells] += 1

    def drop(self, cells: Table) -> None:
        """One text less has them."""
        self._users[cells] -= 1


def _no_cells() -> Table:
    return np.zeros(0, np.int64)


def _no_nodes() -> Seen:
    return np.zeros((0, 0), bool)


@dataclass(slots=True)
class Text:
    """The cells of a text: of its ``n`` committed tokens, then of the nodes of a tree that is yet to be committed, of
    which ``sees`` tells which sees which."""

    cells: Cells
    table: Table = field(default_factory=_no_cells)
    n: int = 0
    sees: Seen = field(default_factory=_no_nodes)

    @property
    def nodes(self) -> int:
        """Of the tree that is yet to be committed."""
        return len(self.table) - self.n

    def keep(self, done: int) -> None:
        """Of the nodes only the first ``done``, which are computed."""
        self._cut(self.n + done)

    def grow(self, tree: TokenTree) -> None:
        """Takes cells for those nodes of ``tree`` that have none."""
        done = self.nodes
        self.table = np.concatenate((self.table, self.cells.take(len(tree) - done)))
        self.sees = ancestors(tree, done, self.sees)

    def spare(self, n: int) -> None:
        """Takes ``n`` cells more, for nodes behind the tree that are yet to be known. The next thing is a commit."""
        self.table = np.concatenate((self.table, self.cells.take(n)))

    def commit(self, path: Sequence[int]) -> None:
        """Of the tree only the nodes of ``path`` stay."""
        nodes, kept = self.table[self.n :], np.array(path, np.int64)
        self.cells.drop(np.delete(nodes, kept))
        self.table = np.concatenate((self.table[: self.n], nodes[kept]))
        self.n += len(kept)
        self.sees = _no_nodes()

    def truncate(self, n: int) -> None:
        """Back to the first ``n`` tokens."""
        self.n = min(self.n, n)
        self._cut(self.n)
        self.sees = _no_nodes()

    def fork(self, n: int) -> Text:
        """Another text, with the same first ``n`` tokens in the same cells."""
        self.cells.share(self.table[:n])
        return Text(self.cells, self.table[:n], n)

    def _cut(self, end: int) -> None:
        self.cells.drop(self.table[end:])
        self.table = self.table[:end]


class Pass:
    """Attention in one pass over new rows of several texts, those of one text behind those of another: what stands
    behind the tokens ``[1, rows]``.

    Args:
        work: each text, grown by its tree, and how many nodes of this were computed before.
        check: is called before each layer; what it raises ends the pass.
    """

    def __init__(self, work: Sequence[tuple[Text, TokenTree, int]], check: Callable[[], None] = lambda: None) -> None:
        self._cells, self.check = work[0][0].cells, check
        self._indices: dict[torch.device, slice | Tensor] = {}
        ends = np.cumsum([len(tree) - done for _, tree, done in work])
        self.parts = [
            Part(text, tree, done, slice(int(end) - len(tree) + done, int(end)))
            for (text, tree, done), end in zip(work, ends, strict=True)
        ]

    @property
    def rows(self) -> int:
        return len(self.new)

    @cached_property
    def new(self) -> Table:
        """Cells of the rows."""
        return np.concatenate([part.new for part in self.parts])

    @cached_property
    def positions(self) -> Table:
        """Of the rows."""
        return np.concatenate([part.places for part in self.parts])

    def places(self, n: int) -> Tensor:
        return torch.from_numpy(self.positions).to(self._cells.device)

    def _new(self, device: torch.device) -> slice | Tensor:
        if device not in self._indices:
            self._indices[device] = _index(self.new, device)
        return self._indices[device]

    def attend(self, layer: int, heads: Heads) -> Tensor:
        self.check()
        q, k = heads.turned()
        sizes = self._cells.sizes
        keys, values = self._cells.layers[layer]
        new = self._new(keys.device)
        keys[:, new], values[:, new] = k[0], heads.v[0]
        window = sizes.window(layer)
        found = []
        for part in self.parts:
            seen = part.seen(window, keys.device)
            mine = q[:, :, part.rows]
            found.append(mixed(sizes, mine, keys[None, :, seen.cells], values[None, :, seen.cells], seen.mask))
        return found[0] if len(found) == 1 else torch.cat(found, dim=2)


@dataclass(frozen=True, slots=True)
class View:
    """The cells that rows look at, and which of them each row sees, ``[rows, cells]``; ``None``: all."""

    cells: slice | Tensor
    mask: Tensor | None


class Part:
    """One text's rows of a pass: ``rows`` among all of them, at the positions ``places``, into the cells ``new``. Cells
    that are spare end its ``table``."""

    def __init__(self, text: Text, tree: TokenTree, done: int, rows: slice) -> None:
        self.rows = rows
        self.table, self.n, self.done, self._sees = text.table, text.n, done, text.sees[done:]
        self._nodes = np.array(tree.depths) + text.n
        self.places = self._nodes[done:]
        self.new = text.table[text.n + done : text.n + len(tree)]
        self._views: dict[tuple[int, torch.device], View] = {}

    @property
    def nodes(self) -> int:
        """Of the whole tree."""
        return len(self._nodes)

    def sees(self, window: int) -> Seen:
        """``[rows, nodes]``: which nodes of its tree each row sees, where it sees so many tokens at most; 0: any
        number."""
        return self._sees & (self.places[:, None] - self._nodes < window) if window else self._sees

    def seen(self, window: int, device: torch.device) -> View:
        """What the rows look at where each sees so many tokens at most; 0: any number."""
        view = self._views.get((window, device))
        if view is None:
            view = self._views[window, device] = self._view(window, device)
        return view

    def _view(self, window: int, device: torch.device) -> View:
        first = min(max(int(self.places.min()) - window + 1, 0), self.n) if window else 0
        behind = self.places[:, None] - np.arange(first, self.n)
        text = behind < window if window else np.ones_like(behind, bool)
        sees = np.concatenate((text, self.sees(window)), axis=1)
        mask = None if sees.all() else torch.from_numpy(sees).to(device)
        return View(_index(self.table[first : self.n + self.nodes], device), mask)


def _index(cells: Table, device: torch.device) -> slice | Tensor:
    """Cells one behind the other need no copy."""
    if (np.diff(cells) == 1).all():
        return slice(int(cells[0]), int(cells[0]) + len(cells))
    return torch.from_numpy(cells).to(device)


def ancestors(tree: TokenTree, done: int, known: Seen) -> Seen:
    """As `TokenTree.mask`, of which ``known`` are the first ``done`` rows: level by level, not node by node."""
    n = len(tree)
    if tree.is_chain:
        return np.tri(n, dtype=bool)
    mask = np.eye(n, dtype=bool)
    mask[:done, :done] = known[:done, :done]
    depths, parents = np.array(tree.depths), np.array(tree.parents)
    for depth in np.unique(depths[max(done, 1) :]):
        level = np.flatnonzero(depths == depth)
        level = level[level >= max(done, 1)]
        mask[level] |= mask[parents[level]]
    return mask
