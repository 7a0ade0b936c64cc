"""Keys and values of several texts, each with a tree behind it that is yet to be committed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from localspec.backends.torch.eagle_weights import HeadShape
from localspec.backends.torch.place import Place
from localspec.spec.tree import TokenTree


@dataclass(frozen=True, slots=True)
class Span:
    """Where a text's new rows go: cells ``start`` to ``end`` of its slot."""

    slot: int
    start: int
    end: int


class Cells:
    """``room`` cells for each of ``slots`` texts. A text's committed tokens take the first cells of its slot, in order;
    the nodes of its tree lie behind them, in theirs."""

    def __init__(self, shape: HeadShape, slots: int, room: int, place: Place) -> None:
        self.room = room
        self._grouped = shape.heads != shape.kv_heads
        # Memory is taken page by page, as cells are written.
        size = (slots, shape.kv_heads, room, shape.each)
        self._layers = [
            [torch.zeros(size, device=place.device, dtype=place.dtype) for _ in range(2)] for _ in range(shape.layers)
        ]

    def attend(self, spans: Sequence[Span], mask: Tensor, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Writes the new rows' keys and values, and lets the rows of each text see the cells that ``mask``
        ``[texts, rows, cells]`` names."""
        length = mask.shape[2]
        seen: list[Tensor] = []
        for part, new in zip(self._layers[layer], (k, v), strict=True):
            for text, span in enumerate(spans):
                part[span.slot, :, span.start : span.end] = new[text, :, : span.end - span.start]
            if len(spans) == 1:
                slot = spans[0].slot
                seen.append(part[slot : slot + 1, :, :length])
            else:
                seen.append(part[[span.slot for span in spans], :, :length])
        keys, values = seen
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=mask[:, None], enable_gqa=self._grouped)

    def move(self, slot: int, start: int, kept: Sequence[int]) -> None:
        """Of the tree behind ``start`` only the nodes ``kept`` stay, in this order."""
        if list(kept) == list(range(len(kept))):
            return
        for layer in self._layers:
            for part in layer:
                there = part[slot, :, start:]
                there[:, : len(kept)] = there[:, list(kept)]

    def copy(self, slot: int, to: int, n: int) -> None:
        """The first ``n`` cells of a slot into another."""
        for layer in self._layers:
            for part in layer:
                part[to, :, :n] = part[slot, :, :n]


def ancestors(tree: TokenTree, done: int, known: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """As `TokenTree.mask`, of which ``known`` are the first ``done`` rows: level by level, not node by node."""
    n = len(tree)
    if tree.is_chain:
        return np.tri(n, dtype=bool)
    mask = np.eye(n, dtype=bool)
    mask[:done, :done] = known
    depths, parents = np.array(tree.depths), np.array(tree.parents)
    for depth in np.unique(depths[max(done, 1) :]):
        level = np.flatnonzero(depths == depth)
        level = level[level >= max(done, 1)]
        mask[level] |= mask[parents[level]]
    return mask
