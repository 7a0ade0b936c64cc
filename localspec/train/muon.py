"""Muon (Jordan and others, 2024): steps for matrices whose singular values are all alike, in float32, since few
processors are faster in shorter numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

#: One round of Newton and Schulz takes singular values x in (0, 1] to a·x + b·x³ + c·x⁵, and five take all to about 1.
_A, _B, _C = 3.4445, -4.775, 2.0315
_ROUNDS = 5


class Muon(torch.optim.Optimizer):
    """A rate of 0.02 moves every direction of a square matrix by 0.02 a step."""

    def __init__(self, matrices: Iterable[Tensor], lr: float, momentum: float = 0.95) -> None:
        super().__init__(matrices, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:
        """One step; a closure is not asked."""
        for group in self.param_groups:
            for one in group["params"]:
                if one.grad is None:
                    continue
                kept = self.state[one].setdefault("mean", torch.zeros_like(one))
                kept.lerp_(one.grad, 1 - group["momentum"])
                ahead = one.grad.lerp(kept, group["momentum"])
                rows, columns = one.shape
                one.add_(_levelled(ahead), alpha=-group["lr"] * max(1.0, rows / columns) ** 0.5)


def _levelled(matrix: Tensor) -> Tensor:
    """The matrix with its singular values drawn to 1."""
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(_ROUNDS):
        square = x @ x.T
        x = _A * x + torch.addmm(square, square, square, beta=_B, alpha=_C) @ x
    return x.T if tall else x
