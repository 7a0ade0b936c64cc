"""What tests of kernels compare by, and random trees."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

#: Relative error that a kernel may have, by the type that it computes in.
TOLERANCE = {torch.float32: 1e-5, torch.float16: 1e-3}
TYPES = tuple(TOLERANCE)


def error(found: Tensor, wanted: Tensor) -> float:
    """Of all numbers together, relative to what was wanted."""
    return float((found.double() - wanted.double()).norm() / wanted.double().norm())


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_parents(nodes: int, seed: int) -> list[int]:
    """Of each node one before it; of the first, -1."""
    rng = generator(seed)
    return [-1, *(int(torch.randint(0, node, (), generator=rng)) for node in range(1, nodes))]


def sees(parents: Sequence[int]) -> Tensor:
    """``[nodes, nodes]``: each node sees itself and what is above it."""
    found = torch.eye(len(parents), dtype=torch.bool)
    for node, parent in enumerate(parents):
        if parent >= 0:
            found[node] |= found[parent]
    return found
