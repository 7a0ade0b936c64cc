"""What stays of the trees of a pass: in the table of slots, or as rows where a cache is in one piece."""

from __future__ import annotations

from torch import Tensor

from localspec.backends.torch.kernels.jit import Launch, ceil_div, kernel, power_of_two, tl

_BLOCK = 1024


@kernel
def _commit(TABLE, LENGTHS, NODES, PATHS, COUNTS, stride_table, stride_paths, BLOCK: tl.constexpr):
    seq = tl.program_id(0)
    length = tl.load(LENGTHS + seq)
    nodes = tl.load(NODES + seq)
    count = tl.load(COUNTS + seq)
    at = tl.arange(0, BLOCK)
    there = at < nodes
    slots = TABLE + seq * stride_table + length
    slot = tl.load(slots + at, mask=there, other=0)
    path = tl.load(PATHS + seq * stride_paths + at, mask=at < count, other=-1)
    hit = path[:, None] == at[None, :]
    kept = tl.sum(hit.to(tl.int32), 0)
    rank = tl.sum(tl.where(hit, at[:, None], 0), 0)
    rest = tl.where(there & (kept == 0), 1, 0)
    place = tl.where(kept > 0, rank, count + tl.cumsum(rest, 0) - 1)
    # Nothing is written before all is read.
    tl.debug_barrier()
    tl.store(slots + place, slot, mask=there)
    tl.store(LENGTHS + seq, length + count)


@kernel
def _move(CACHE, LENGTH, PATH, COUNT, width, stride_plane, stride_row, BLOCK: tl.constexpr):
    plane = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = at < width
    rows = CACHE + plane * stride_plane + tl.load(LENGTH).to(tl.int64) * stride_row + at
    # A path ascends and its entry i is no less than i: no row is written before it is read.
    for i in range(tl.load(COUNT)):
        row = tl.load(rows + tl.load(PATH + i).to(tl.int64) * stride_row, mask=there)
        tl.store(rows + i * stride_row, row, mask=there)


def commit_launch(table: Tensor, lengths: Tensor, nodes: Tensor, paths: Tensor, counts: Tensor) -> Launch:
    return Launch(
        _commit,
        (len(lengths),),
        (table, lengths, nodes, paths, counts, table.stride(0), paths.stride(0)),
        {"BLOCK": power_of_two(paths.shape[1], 16)},
        1,
    )


def move_launch(cache: Tensor, length: Tensor, path: Tensor, count: Tensor) -> Launch:
    planes, _, width = cache.shape
    return Launch(
        _move,
        (planes, ceil_div(width, _BLOCK)),
        (cache, length, path, count, width, cache.stride(0), cache.stride(1)),
        {"BLOCK": _BLOCK},
        4,
    )


def commit(table: Tensor, lengths: Tensor, nodes: Tensor, paths: Tensor, counts: Tensor) -> None:
    """Keeps the nodes of a path in each sequence: their slots come first behind the text, in the path's order, then
    those of the other nodes, which the next tree takes. ``lengths`` grow.

    Args:
        table: ``[sequences, room]`` int32, as in `Forest`.
        lengths: ``[sequences]`` int32.
        nodes: ``[sequences]`` int32, of each tree.
        paths: ``[sequences, most nodes]`` int32, distinct nodes.
        counts: ``[sequences]`` int32, how many of each path count.
    """
    commit_launch(table, lengths, nodes, paths, counts).run()


def commit_plainly(table: Tensor, lengths: Tensor, nodes: Tensor, paths: Tensor, counts: Tensor) -> None:
    """`commit` in torch. It waits for the device."""
    for seq, (length, n, count) in enumerate(zip(lengths.tolist(), nodes.tolist(), counts.tolist(), strict=True)):
        kept = paths[seq, :count].tolist()
        order = kept + [node for node in range(n) if node not in kept]
        slots = table[seq, length : length + n]
        slots.copy_(slots[order].clone())
        lengths[seq] += count


def move_rows(cache: Tensor, length: Tensor, path: Tensor, count: Tensor) -> None:
    """Moves the rows of a path to the rows from ``length`` on, in all planes of ``cache``.

    Args:
        cache: ``[planes, room, width]``, a plane for the keys and one for the values of each layer.
        length: ``[1]`` int32, rows before the tree.
        path: ``[nodes]`` int32, ascending.
        count: ``[1]`` int32, how many of the path count.
    """
    assert cache.stride(2) == 1
    move_launch(cache, length, path, count).run()


def move_rows_plainly(cache: Tensor, length: Tensor, path: Tensor, count: Tensor) -> None:
    """`move_rows` in torch. It waits for the device."""
    start, n = int(length), int(count)
    cache[:, start : start + n] = cache[:, start + path[:n].long()].clone()
