"""Attention of token trees: every node sees the committed text of its sequence and its own ancestors.

The text is cut into parts without a mask, which programs read side by side; the tree is one part more, with 64 bits a
node that say which nodes it sees. A second kernel merges the parts by their log-sum-exp. All query heads that share a
head of keys are rows of one tile, so the text is read once for a whole tree. Lengths, trees and the table are read
from device memory: one CUDA graph serves every length.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from localspec.backends.torch.kernels.jit import Card, Launch, ceil_div, kernel, kernel_for_any, power_of_two, tl

MAX_NODES = 64


@dataclass(frozen=True, slots=True)
class Forest:
    """The trees of a pass, one a sequence, one behind the other in the rows of the pass.

    Args:
        starts: ``[sequences + 1]`` int32, the first row of each tree, and the end of the last.
        lengths: ``[sequences]`` int32, committed tokens.
        done: ``[sequences]`` int32, first nodes of each tree that have no row, since they were computed before.
        positions: ``[rows]`` int32, each node's place in its text.
        masks: ``[rows]`` int64; bit ``j``: the node sees node ``j`` of its tree (`packed`). Itself is one of them. A
            layer whose window is narrower than a tree is deep has masks of its own.
        table: ``[sequences, room]`` int32, the slot of the pool where each committed token lies and, behind them, each
            node of the tree.
    """

    starts: Tensor
    lengths: Tensor
    done: Tensor
    positions: Tensor
    masks: Tensor
    table: Tensor


@dataclass(frozen=True, slots=True)
class Sight:
    """``scale`` of the scores, 0: that of the width of a head; ``window``: a node sees so many positions, itself the
    last of them, 0: all."""

    scale: float = 0.0
    window: int = 0

    def factor(self, each: int) -> float:
        return self.scale or each**-0.5


def packed(sees: Tensor) -> Tensor:
    """Bits of ``sees`` ``[rows, nodes]``, true where a row's node sees another: ``[rows]`` int64."""
    bits = torch.arange(sees.shape[1], device=sees.device)
    return (sees.long() << bits).sum(dim=1)


@kernel
def _fold(s, v, best, total, mixed):
    """One more block of scores ``s``, which are powers of 2, and of values in the running maximum, sum and mixture."""
    higher = tl.maximum(best, tl.max(s, 1))
    # A row that has seen nothing yet would compute inf - inf.
    at = tl.where(higher == float("-inf"), 0.0, higher)
    p = tl.math.exp2(s - at[:, None])
    shrink = tl.math.exp2(best - at)
    total = total * shrink + tl.sum(p, 1)
    mixed = mixed * shrink[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
    return higher, total, mixed


@kernel_for_any("rows", "splits", "stride_table")
def _part(
    Q,
    K,
    V,
    STARTS,
    LENGTHS,
    DONE,
    POSITIONS,
    MASKS,
    TABLE,
    PARTS,
    SUMS,
    scale,
    rows,
    splits,
    stride_q,
    stride_slot,
    stride_head,
    stride_table,
    GROUP: tl.constexpr,
    EACH: tl.constexpr,
    WINDOW: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BD: tl.constexpr,
):
    tile = tl.program_id(0)
    head = tl.program_id(1)
    kv_heads = tl.num_programs(1)
    # In a large pool the last head lies farther than 32 bits count.
    from_head = head.to(tl.int64) * stride_head
    seq = tl.program_id(2) // (splits + 1)
    split = tl.program_id(2) % (splits + 1)
    start = tl.load(STARTS + seq)
    nodes = tl.load(STARTS + seq + 1) - start
    if tile * BM >= nodes * GROUP:
        return
    length = tl.load(LENGTHS + seq)

    r = tile * BM + tl.arange(0, BM)
    node = r // GROUP
    used = node < nodes
    row = start + node
    query = head * GROUP + r % GROUP
    d = tl.arange(0, BD)
    real = d[None, :] < EACH
    q_at = Q + (row * stride_q + query * EACH)[:, None] + d[None, :]
    if BD == EACH:
        q = tl.load(q_at, mask=used[:, None], other=0.0)
    else:
        q = tl.load(q_at, mask=used[:, None] & real, other=0.0)
    position = tl.load(POSITIONS + row, mask=used, other=0)

    first = 0
    if WINDOW > 0:
        first = tl.maximum(length - WINDOW + 1, 0)
    each = tl.cdiv(tl.cdiv(length - first, splits), BN) * BN
    low = first + split * each
    high = tl.minimum(low + each, length)
    # The last part is the tree.
    high = tl.where(split < splits, high, low)
    in_tree = tl.where(split < splits, 0, tl.load(DONE + seq) + nodes)

    best = tl.full([BM], float("-inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    mixed = tl.zeros([BM, BD], tl.float32)
    for n in range(low, high, BN):
        at = n + tl.arange(0, BN)
        there = at < high
        slot = tl.load(TABLE + seq * stride_table + at, mask=there, other=0).to(tl.int64)
        offset = (slot * stride_slot + from_head)[:, None] + d[None, :]
        loaded = there[:, None]
        if BD != EACH:
            loaded = loaded & real
        k = tl.load(K + offset, mask=loaded, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        seen = there[None, :]
        if WINDOW > 0:
            seen = seen & (at[None, :] > position[:, None] - WINDOW)
        s = tl.where(seen, s, float("-inf"))
        v = tl.load(V + offset, mask=loaded, other=0.0)
        best, total, mixed = _fold(s, v, best, total, mixed)

    bits = tl.load(MASKS + row, mask=used, other=0)
    for n in range(0, in_tree, BN):
        at = n + tl.arange(0, BN)
        there = at < in_tree
        slot = tl.load(TABLE + seq * stride_table + length + at, mask=there, other=0).to(tl.int64)
        offset = (slot * stride_slot + from_head)[:, None] + d[None, :]
        loaded = there[:, None]
        if BD != EACH:
            loaded = loaded & real
        k = tl.load(K + offset, mask=loaded, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        seen = there[None, :] & (((bits[:, None] >> at[None, :].to(tl.int64)) & 1) == 1)
        s = tl.where(seen, s, float("-inf"))
        v = tl.load(V + offset, mask=loaded, other=0.0)
        best, total, mixed = _fold(s, v, best, total, mixed)

    saw = total > 0
    sure = tl.where(saw, total, 1.0)
    out = (split * rows + row) * (kv_heads * GROUP) + query
    tl.store(SUMS + out, tl.where(saw, best + tl.math.log2(sure), float("-inf")), mask=used)
    # What saw nothing is left unwritten, and not read.
    tl.store(PARTS + out[:, None] * BD + d[None, :], mixed / sure[:, None], mask=(used & saw)[:, None])


@kernel_for_any("rows", "sequences", "splits")
def _merge(
    PARTS,
    SUMS,
    STARTS,
    OUT,
    rows,
    sequences,
    splits,
    EACH: tl.constexpr,
    BS: tl.constexpr,
    BD: tl.constexpr,
):
    row = tl.program_id(0)
    head = tl.program_id(1)
    heads = tl.num_programs(1)
    used = row < tl.load(STARTS + sequences)
    split = tl.arange(0, BS)
    d = tl.arange(0, BD)
    at = (split * rows + row) * heads + head
    sums = tl.load(SUMS + at, mask=(split <= splits) & used, other=float("-inf"))
    best = tl.max(sums, 0)
    weight = tl.math.exp2(sums - tl.where(used, best, 0.0))
    weight = weight / tl.where(used, tl.sum(weight, 0), 1.0)
    part = tl.load(PARTS + at[:, None] * BD + d[None, :], mask=(sums > float("-inf"))[:, None], other=0.0)
    mixed = tl.sum(part * weight[:, None], 0)
    tl.store(OUT + (row * heads + head) * EACH + d, mixed.to(OUT.dtype.element_ty), mask=d < EACH)


@dataclass(frozen=True, slots=True)
class Tiles:
    """How a pass is cut: ``bm`` query rows and ``bn`` keys a block, ``splits`` parts of the text."""

    bm: int
    bn: int
    splits: int
    warps: int
    stages: int

    @classmethod
    def of(cls, card: Card, *, nodes: int, sequences: int, heads: int, kv_heads: int, each: int, size: int) -> Tiles:
        """``nodes``: of the largest tree; ``size``: bytes of a number in the cache."""
        bd = power_of_two(each)
        bm = min(power_of_two(nodes * heads // kv_heads, 16), 64)
        bn = 64 if bd <= 128 and size <= 2 else 32
        programs = ceil_div(nodes * heads // kv_heads, bm) * kv_heads * sequences
        splits = min(max(2 * card.processors // programs, 1), 31)
        # Three stages: the slots of a block are known when its keys are asked for.
        return cls(bm, bn, splits, warps=4 if bm < 64 and bd <= 128 else 8, stages=3)


def launches(
    q: Tensor, keys: Tensor, values: Tensor, forest: Forest, out: Tensor, tiles: Tiles, sight: Sight, nodes: int
) -> list[Launch]:
    """The parts, and their merging into ``out``, for trees of up to ``nodes`` nodes."""
    rows, heads, each = q.shape
    kv_heads, sequences = keys.shape[1], len(forest.lengths)
    group, bd = heads // kv_heads, power_of_two(each)
    parts = q.new_empty((tiles.splits + 1, rows, heads, bd), dtype=torch.float32)
    sums = q.new_empty((tiles.splits + 1, rows, heads), dtype=torch.float32)
    shape = {"EACH": each, "BD": bd}
    part = Launch(
        _part,
        (ceil_div(nodes * group, tiles.bm), kv_heads, sequences * (tiles.splits + 1)),
        (
            *(q, keys, values, forest.starts, forest.lengths, forest.done, forest.positions, forest.masks),
            *(forest.table, parts, sums, sight.factor(each) * math.log2(math.e), rows, tiles.splits),
            *(q.stride(0), keys.stride(0), keys.stride(1), forest.table.stride(0)),
        ),
        {"GROUP": group, "WINDOW": sight.window, "BM": tiles.bm, "BN": tiles.bn, **shape},
        tiles.warps,
        tiles.stages,
    )
    merge = Launch(
        _merge,
        (rows, heads),
        (parts, sums, forest.starts, out, rows, sequences, tiles.splits),
        {"BS": 8 if tiles.splits < 8 else 32, **shape},
        1 if tiles.splits < 8 else 4,
    )
    return [part, merge]


def attend(
    q: Tensor, keys: Tensor, values: Tensor, forest: Forest, sight: Sight | None = None, nodes: int = MAX_NODES
) -> Tensor:
    """What each node's heads mix of the values they see: ``[rows, heads, each]``, as ``q``.

    Args:
        q: ``[rows, heads, each]``, heads in one piece; rows behind the last tree come out as 0.
        keys: ``[slots, kv heads, each]``, the pool; slots and heads may lie in either order.
        values: as ``keys``.
        forest: the trees.
        sight: what is seen of the text, and how.
        nodes: of the largest tree, at most 64. It shapes the launch, so a graph serves trees up to that.
    """
    rows, heads, each = q.shape
    assert nodes <= MAX_NODES
    assert q.stride()[1:] == (each, 1)
    assert keys.stride() == values.stride()
    assert keys.stride(2) == 1
    out = torch.empty((rows, heads, each), dtype=q.dtype, device=q.device)
    tiles = Tiles.of(
        Card.of(q.device),
        nodes=min(nodes, rows),
        sequences=len(forest.lengths),
        heads=heads,
        kv_heads=keys.shape[1],
        each=each,
        size=keys.element_size(),
    )
    for launch in launches(q, keys, values, forest, out, tiles, sight or Sight(), min(nodes, rows)):
        launch.run()
    return out


def attend_plainly(
    q: Tensor, keys: Tensor, values: Tensor, forest: Forest, sight: Sight | None = None, nodes: int = MAX_NODES
) -> Tensor:
    """`attend`, by torch's own attention and a mask, sequence by sequence. It waits for the device."""
    sight = sight or Sight()
    starts, lengths, done = forest.starts.tolist(), forest.lengths.tolist(), forest.done.tolist()
    out = torch.zeros_like(q)
    for seq, length in enumerate(lengths):
        rows = slice(starts[seq], starts[seq + 1])
        if starts[seq] == starts[seq + 1]:  # no tree here in this pass
            continue
        n = done[seq] + starts[seq + 1] - starts[seq]
        slots = forest.table[seq, : length + n].long()
        seen = _sees(forest, rows, length, n, sight.window)
        k, v = (pool[slots].transpose(0, 1)[None] for pool in (keys, values))
        mixed = F.scaled_dot_product_attention(
            q[rows].transpose(0, 1)[None], k, v, seen, scale=sight.factor(q.shape[2]), enable_gqa=True
        )
        out[rows] = mixed[0].transpose(0, 1)
    return out


def _sees(forest: Forest, rows: slice, length: int, n: int, window: int) -> Tensor:
    """``[rows, length + nodes]``."""
    masks, positions = forest.masks[rows], forest.positions[rows]
    tree = (masks[:, None] >> torch.arange(n, device=masks.device) & 1).bool()
    text = tree.new_ones((len(masks), length))
    if window:
        text &= torch.arange(length, device=masks.device) > positions[:, None] - window
    return torch.cat([text, tree], dim=1)
