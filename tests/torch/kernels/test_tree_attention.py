"""Attention of trees: the kernel in Triton's interpreter against torch's own attention, and that against the plain
rule."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

pytest.importorskip("torch", reason="needs the extra 'torch'")

import torch
from torch import Tensor

from localspec.backends.torch.kernels.jit import Card
from localspec.backends.torch.kernels.tree_attention import (
    Forest,
    Sight,
    Tiles,
    attend,
    attend_plainly,
    launches,
    packed,
)
from tests.torch.kernels.support import TOLERANCE, TYPES, error, generator, random_parents, sees

SMALL = Tiles(bm=16, bn=16, splits=2, warps=4, stages=2)


@dataclass(frozen=True)
class Case:
    """Trees behind texts: ``(length, nodes, nodes that were computed before)`` of each sequence."""

    trees: tuple[tuple[int, int, int], ...]
    heads: int = 4
    kv_heads: int = 2
    each: int = 32
    sight: Sight = field(default_factory=Sight)
    heads_first: bool = False
    spare_rows: int = 0
    seed: int = 0

    @property
    def rows(self) -> int:
        return sum(nodes - done for _, nodes, done in self.trees) + self.spare_rows


CASES = {
    "64 nodes behind a text": Case(((37, 64, 0),), heads=2, kv_heads=1),
    "one token": Case(((130, 1, 0),), heads=4, kv_heads=2, each=64),
    "no text": Case(((0, 13, 0),), heads=2, kv_heads=1),
    "one token, nothing else": Case(((0, 1, 0),), heads=1, kv_heads=1),
    "every head its own keys": Case(((33, 9, 0),), heads=3, kv_heads=3),
    "heads of 24": Case(((40, 7, 0),), each=24),
    "window": Case(((70, 12, 0),), sight=Sight(window=19)),
    "window wider than the text": Case(((9, 5, 0),), sight=Sight(window=512)),
    "another scale": Case(((21, 5, 0),), sight=Sight(scale=0.3)),
    "three texts": Case(((50, 11, 0), (0, 1, 0), (17, 5, 0)), heads=2, kv_heads=1),
    "nodes computed before": Case(((20, 16, 6), (35, 64, 60)), heads=2, kv_heads=1),
    "heads first in the pool": Case(((45, 10, 0),), heads_first=True),
    "rows that fill a bucket": Case(((30, 5, 0),), spare_rows=3),
}


def forest_of(case: Case) -> tuple[Forest, int]:
    """Trees whose slots lie in no order, and how many slots there are."""
    room = max(length + nodes for length, nodes, _ in case.trees) + 5
    slots = torch.randperm(len(case.trees) * room + 7, generator=generator(case.seed))
    table = slots[: len(case.trees) * room].view(len(case.trees), room).int()
    starts, positions, masks = [0], [], []
    for seq, (length, nodes, done) in enumerate(case.trees):
        tree = sees(random_parents(nodes, case.seed + seq))
        starts.append(starts[-1] + nodes - done)
        positions.append(length + tree.sum(1)[done:] - 1)
        masks.append(packed(tree[done:]))
        assert masks[-1].shape == (nodes - done,)
    spare = torch.zeros(case.spare_rows, dtype=torch.int64)
    columns = [torch.tensor(column, dtype=torch.int32) for column in zip(*case.trees, strict=True)]
    return (
        Forest(
            torch.tensor(starts, dtype=torch.int32),
            columns[0],
            columns[2],
            torch.cat([*positions, spare]).int(),
            torch.cat([*masks, spare]),
            table,
        ),
        len(slots),
    )


def tensors(case: Case, forest: Forest, slots: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values; what no text has in the pool is not a number."""
    rng = generator(case.seed + 1)
    q = torch.randn(case.rows, case.heads, case.each, generator=rng).to(dtype)
    pools = []
    for _ in range(2):
        shape = (case.kv_heads, slots, case.each) if case.heads_first else (slots, case.kv_heads, case.each)
        pool = torch.full(shape, torch.nan, dtype=dtype)
        pool = pool.transpose(0, 1) if case.heads_first else pool
        for seq, (length, nodes, _) in enumerate(case.trees):
            used = forest.table[seq, : length + nodes].long()
            pool[used] = torch.randn(len(used), *pool.shape[1:], generator=rng).to(dtype)
        pools.append(pool)
    return q, pools[0], pools[1]


def run(q: Tensor, keys: Tensor, values: Tensor, forest: Forest, sight: Sight, tiles: Tiles) -> Tensor:
    out = torch.full_like(q, torch.nan)
    nodes = int((forest.starts[1:] - forest.starts[:-1]).max())
    for launch in launches(q, keys, values, forest, out, tiles, sight, nodes):
        launch.run()
    return out


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_kernel_equals_torch(case: Case, dtype: torch.dtype) -> None:
    pytest.importorskip("triton", reason="needs Triton")
    forest, slots = forest_of(case)
    q, keys, values = tensors(case, forest, slots, dtype)
    found = run(q, keys, values, forest, case.sight, SMALL)
    wanted = attend_plainly(q.double(), keys.double(), values.double(), forest, case.sight)
    assert error(found, wanted) < TOLERANCE[dtype]
    used = case.rows - case.spare_rows
    assert (found[used:] == 0).all()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_torch_equals_the_rule(case: Case) -> None:
    forest, slots = forest_of(case)
    q, keys, values = tensors(case, forest, slots, torch.float64)
    wanted = torch.zeros_like(q)
    for seq, (length, nodes, done) in enumerate(case.trees):
        tree = sees(random_parents(nodes, case.seed + seq))
        start = int(forest.starts[seq])
        for node in range(done, nodes):
            row = start + node - done
            position = length + int(tree[node].sum()) - 1
            text = [at for at in range(length) if not case.sight.window or at > position - case.sight.window]
            seen = [*text, *(length + other for other in range(nodes) if tree[node, other])]
            cells = forest.table[seq, seen].long()
            for head in range(case.heads):
                kv = head * case.kv_heads // case.heads
                scores = keys[cells, kv] @ q[row, head] * case.sight.factor(case.each)
                wanted[row, head] = scores.softmax(0) @ values[cells, kv]
    assert error(attend_plainly(q, keys, values, forest, case.sight), wanted) < 1e-12


@pytest.mark.parametrize("tiles", [replace(SMALL, bm=64, bn=64, splits=1), replace(SMALL, bn=32, splits=7)], ids=str)
def test_how_a_pass_is_cut_changes_nothing(tiles: Tiles) -> None:
    pytest.importorskip("triton", reason="needs Triton")
    case = CASES["three texts"]
    forest, slots = forest_of(case)
    q, keys, values = tensors(case, forest, slots, torch.float32)
    assert error(run(q, keys, values, forest, case.sight, tiles), attend_plainly(q, keys, values, forest)) < 1e-5


def test_the_whole_call(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton", reason="needs Triton")
    monkeypatch.setattr(Card, "of", classmethod(lambda cls, device: Card(processors=4)))
    case = CASES["another scale"]
    forest, slots = forest_of(case)
    q, keys, values = tensors(case, forest, slots, torch.float32)
    wanted = attend_plainly(q, keys, values, forest, case.sight)
    assert error(attend(q, keys, values, forest, case.sight), wanted) < 1e-5


def test_few_rows_are_parted_more_often() -> None:
    sizes = {"sequences": 1, "heads": 32, "kv_heads": 8, "each": 128, "size": 2}
    one, many = (Tiles.of(Card(132), nodes=nodes, **sizes) for nodes in (1, 64))
    assert (one.bm, one.splits) == (16, 31)
    assert (many.bm, many.splits) == (64, 8)


def test_a_mask_takes_64_nodes() -> None:
    assert packed(torch.ones((1, 64), dtype=torch.bool)).tolist() == [-1]
    assert packed(torch.eye(64, dtype=torch.bool))[63].item() == -(1 << 63)
