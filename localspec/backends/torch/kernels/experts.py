"""The inner layer of models with experts: each row goes through those that its router found likeliest.

Which these are is known on the device alone. Waiting for them costs a pass its graph; so for few rows what is computed
has a fixed shape. Either the matrices of the asked experts are gathered, a copy each for each row, or all experts read
all rows, and those that were not asked count nothing: with many rows nearly all are asked by one of them anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

#: The gate between the matrices, as in `gated`.
Gate = Callable[[Tensor, Tensor], Tensor]
#: Rows that are read in a fixed shape, at most.
MOST = 64
#: A gathered matrix is read, written and read again.
_GATHERED = 3


@dataclass(frozen=True, slots=True)
class Experts:
    """Of one layer: ``gate`` and ``up`` ``[experts, inner, width]``, ``down`` ``[experts, width, inner]``."""

    gate: Tensor
    up: Tensor
    down: Tensor


def through(rows: Tensor, chosen: Tensor, share: Tensor, experts: Experts, gate: Gate) -> Tensor:
    """What the experts ``chosen`` ``[n, asked]`` make of ``rows`` ``[n, width]``, each by its ``share``. Nothing waits
    for the device where the rows are few."""
    if len(rows) > MOST:
        return through_asked(rows, chosen, share, experts, gate)
    by = gathered if is_gathered(len(rows), chosen.shape[1], len(experts.gate)) else through_all
    return by(rows, chosen, share, experts, gate)


def is_gathered(rows: int, asked: int, experts: int) -> bool:
    """Whether less is read so than if all experts read all rows."""
    return _GATHERED * rows * asked < experts


def gathered(rows: Tensor, chosen: Tensor, share: Tensor, experts: Experts, gate: Gate) -> Tensor:
    """`through`, by a copy of the asked matrices for each row."""
    (n, asked), width = chosen.shape, rows.shape[1]
    which = chosen.flatten()
    read = rows[:, None, :, None].expand(n, asked, width, 1).reshape(-1, width, 1)
    inner = gate(*(torch.bmm(matrix[which], read)[..., 0] for matrix in (experts.gate, experts.up)))
    given = torch.bmm(experts.down[which], inner[..., None]).view(n, asked, width)
    return (given * share[..., None]).sum(dim=1)


def through_all(rows: Tensor, chosen: Tensor, share: Tensor, experts: Experts, gate: Gate) -> Tensor:
    """`through`, by all experts for all rows."""
    n, (count, inner, width) = len(rows), experts.gate.shape
    shares = share.new_zeros(n, count).scatter(1, chosen, share)
    made = gate(*(F.linear(rows, matrix.view(-1, width)) for matrix in (experts.gate, experts.up)))
    counted = made.view(n, count, inner) * shares[..., None]
    return torch.bmm(counted.transpose(0, 1), experts.down.transpose(1, 2)).sum(dim=0)


def through_asked(rows: Tensor, chosen: Tensor, share: Tensor, experts: Experts, gate: Gate) -> Tensor:
    """`through`, by those experts alone that a row asks for, one after the other. It waits for the device."""
    given = torch.zeros_like(rows)
    for expert in chosen.unique().tolist():
        at, place = (chosen == expert).nonzero(as_tuple=True)
        read = rows[at]
        inner = gate(read @ experts.gate[expert].T, read @ experts.up[expert].T)
        given.index_add_(0, at, inner @ experts.down[expert].T * share[at, place, None])
    return given
