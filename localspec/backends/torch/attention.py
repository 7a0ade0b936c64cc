"""What stands behind the tokens of a pass: nothing, or texts of one length that go on side by side.

Texts that go their own ways, with trees behind them, are in `localspec.backends.torch.cells`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from localspec.backends.torch.kernels.rope_write import HeadNorms, Turn, turned
from localspec.backends.torch.sizes import Sizes


@dataclass(frozen=True, slots=True)
class Heads:
    """Queries, keys and values of the tokens of a pass, ``[texts, heads, n, each]``, as matrices gave them; keys and
    values may have fewer heads. ``turn`` is that of the tokens' positions."""

    q: Tensor
    k: Tensor
    v: Tensor
    turn: Turn
    norms: HeadNorms | None = None

    def turned(self) -> tuple[Tensor, Tensor]:
        """Queries and keys, normed and turned."""
        return turned(self.q, self.k, self.turn, self.norms)


class Past(Protocol):
    def places(self, n: int) -> Tensor:
        """Positions ``[n]`` of the tokens of a pass."""
        ...

    def attend(self, layer: int, heads: Heads) -> Tensor:
        """What each token takes from those that it sees: ``[texts, heads, n, each]``. Where texts go on, keys and
        values are kept."""
        ...


class Nothing:
    """Whole texts, from their first token on."""

    def __init__(self, sizes: Sizes, device: torch.device) -> None:
        self._sizes, self._device = sizes, device

    def places(self, n: int) -> Tensor:
        return torch.arange(n, device=self._device)

    def attend(self, layer: int, heads: Heads) -> Tensor:
        return _in_order(self._sizes, layer, *heads.turned(), heads.v)


@dataclass(slots=True)
class Cache:
    """Keys and values of what was read, a layer: ``[texts, kv heads, room, each]``, the first ``n`` of them filled."""

    sizes: Sizes
    keys: list[Tensor]
    values: list[Tensor]
    n: int = 0

    @classmethod
    def of(cls, sizes: Sizes, texts: int, room: int) -> Cache:
        """Empty."""
        size = (texts, sizes.kv_heads, room, sizes.each)
        keys, values = ([torch.zeros(size) for _ in range(sizes.layers)] for _ in range(2))
        return cls(sizes, keys, values)

    def places(self, n: int) -> Tensor:
        return torch.arange(self.n, self.n + n)

    def attend(self, layer: int, heads: Heads) -> Tensor:
        q, k = heads.turned()
        end = self.n + k.shape[2]
        keys, values = self.keys[layer], self.values[layer]
        keys[:, :, self.n : end], values[:, :, self.n : end] = k, heads.v
        if layer == self.sizes.layers - 1:
            self.n = end
        return _in_order(self.sizes, layer, q, keys[:, :, :end], values[:, :, :end])


def _in_order(sizes: Sizes, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Each token sees those before it, and the last of ``q`` is the last of ``k``."""
    n, length, window = q.shape[2], k.shape[2], sizes.window(layer)
    if (window and length > window) or 1 < n < length:
        cells = torch.arange(length, device=q.device)
        behind = cells[length - n :, None] - cells
        return mixed(sizes, q, k, v, (behind >= 0) & (behind < (window or length)))
    return mixed(sizes, q, k, v, None, in_order=n > 1)


def mixed(sizes: Sizes, q: Tensor, k: Tensor, v: Tensor, sees: Tensor | None, *, in_order: bool = False) -> Tensor:
    """Attention of queries over keys ``[texts, heads, …, each]``; ``sees`` is true where one sees another, ``None``:
    all see all, or ``in_order`` those before them."""
    grouped = sizes.heads != sizes.kv_heads
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=sees, is_causal=in_order, scale=sizes.scale, enable_gqa=grouped
    )
