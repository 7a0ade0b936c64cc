"""What a pass over a few rows reads, in memory that stays where it is: so one CUDA graph serves all passes of a size.

A row that only fills a pass up to a size has no cell, so it writes nothing; it sees nothing, and its attention is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from localspec.backends.torch.attention import Heads
from localspec.backends.torch.cells import Cells, Pass, Seen, Table
from localspec.backends.torch.kernels.dispatch import Ops
from localspec.backends.torch.kernels.jit import ceil_div
from localspec.backends.torch.kernels.tree_attention import MAX_NODES, Forest, Sight


class Inputs:
    """Of passes of up to so many ``rows`` behind up to so many ``texts``."""

    def __init__(self, cells: Cells, texts: int, rows: int) -> None:
        self._cells = cells
        self._window = max(map(cells.sizes.window, range(cells.sizes.layers)))
        sizes = _sizes(texts, rows)
        ends = np.cumsum([*sizes.values()]).tolist()
        self._at = {name: slice(end - n, end) for end, (name, n) in zip(ends, sizes.items(), strict=True)}
        self._here, self._there = self._twice(ends[-1])
        self._tables_here, self._tables = self._twice(texts, cells.room)

    def _twice(self, *size: int) -> tuple[Tensor, Tensor]:
        """Numbers in this machine's memory, and where the model is."""
        here = torch.zeros(size, dtype=torch.int32, pin_memory=self._cells.device.type == "cuda")
        return here, torch.zeros(size, dtype=torch.int32, device=self._cells.device)

    def fill(self, tokens: Sequence[int], past: Pass) -> None:
        """Puts a pass in, behind whatever the device still does. Passes end with reading what they gave, so the last
        one has been taken from here."""
        parts, rows = past.parts, past.rows
        self._put("tokens", tokens)
        self._put("positions", past.positions)
        self._put("slots", past.new, -1)
        self._put_bits("masks", [part.sees(0) for part in parts])
        if self._window:
            self._put_bits("near", [part.sees(self._window) for part in parts])
        self._put("starts", [0, *(part.rows.stop for part in parts)], rows)
        self._put("lengths", [part.n for part in parts])
        self._put("done", [part.done for part in parts])
        self._there.copy_(self._here, non_blocking=True)
        for text, part in enumerate(parts):
            self._put_table(text, part.table)

    def _put(self, name: str, numbers: ArrayLike, rest: int = 0) -> None:
        self._fill(self._here[self._at[name]].numpy(), numbers, rest)

    def _put_bits(self, name: str, sees: list[Seen]) -> None:
        self._fill(self._here[self._at[name]].view(torch.int64).numpy(), np.concatenate([*map(bits, sees)]), 0)

    def _fill(self, place: NDArray[np.integer], numbers: ArrayLike, rest: int) -> None:
        found = np.asarray(numbers)
        place[: len(found)], place[len(found) :] = found, rest

    def _put_table(self, text: int, table: Table) -> None:
        """Sends what the device does not have of it: mostly the cells of the last tree and of this one."""
        known = self._tables_here[text, : len(table)].numpy()
        differing = np.flatnonzero(known != table)
        if len(differing):
            new = slice(int(differing[0]), len(table))
            known[new] = table[new]
            self._tables[text, new].copy_(self._tables_here[text, new], non_blocking=True)

    def feed(self, rows: int, texts: int, ops: Ops) -> Feed:
        """What passes of this size read."""

        def of(name: str, n: int) -> Tensor:
            return self._there[self._at[name]][:n]

        def forest(masks: str) -> Forest:
            seen = self._there[self._at[masks]].view(torch.int64)[:rows]
            starts, lengths, done = of("starts", texts + 1), of("lengths", texts), of("done", texts)
            return Forest(starts, lengths, done, of("positions", rows), seen, self._tables[:texts])

        return Feed(of("tokens", rows)[None], of("slots", rows), forest("masks"), forest("near"), self._cells, ops)


@dataclass(frozen=True, slots=True)
class Feed:
    """What stands behind the ``tokens`` ``[1, rows]`` of passes of one size. ``near`` is the forest for layers with a
    window: a tree may be deeper than that."""

    tokens: Tensor
    slots: Tensor
    forest: Forest
    near: Forest
    cells: Cells
    ops: Ops

    def places(self, n: int) -> Tensor:
        return self.forest.positions

    def attend(self, layer: int, heads: Heads) -> Tensor:
        q, k, v = (part[0].transpose(0, 1) for part in (heads.q, heads.k, heads.v))
        keys, values = (pool.transpose(0, 1) for pool in self.cells.layers[layer])
        self.ops.rope_write(q, k, v, heads.turn, self.slots, keys, values, heads.norms)
        window = self.cells.sizes.window(layer)
        sight = Sight(self.cells.sizes.scale, window)
        seen = self.ops.attend(q, keys, values, self.near if window else self.forest, sight)
        return seen.transpose(0, 1)[None]


def input_bytes(texts: int, rows: int, room: int) -> int:
    """What `Inputs` take where the model is, with so many cells."""
    return 4 * (sum(_sizes(texts, rows).values()) + texts * room)


def _sizes(texts: int, rows: int) -> dict[str, int]:
    """What lies behind what: numbers of 32 bits."""
    # Masks are numbers of 64 bits, two of the others each; they come first, where those may begin.
    sizes = {"masks": 2 * rows, "near": 2 * rows}
    sizes |= dict.fromkeys(("tokens", "positions", "slots"), rows)
    sizes |= {"starts": texts + 1, "lengths": texts, "done": texts}
    # Each begins where 16 divides its place, as kernels like it.
    return {name: 4 * ceil_div(n, 4) for name, n in sizes.items()}


def bits(sees: Seen) -> NDArray[np.int64]:
    """``sees`` ``[rows, nodes]`` as masks of a `Forest`."""
    wide = np.zeros((len(sees), MAX_NODES), bool)
    wide[:, : sees.shape[1]] = sees
    return np.packbits(wide, axis=1, bitorder="little").view("<i8")[:, 0]
