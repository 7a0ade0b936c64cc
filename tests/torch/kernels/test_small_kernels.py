"""The kernels around the products of a decoder, in Triton's interpreter, against torch."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("triton", reason="needs Triton")

import torch
from torch import Tensor

from localspec.backends.torch.kernels.commit import commit, commit_plainly, move_rows, move_rows_plainly
from localspec.backends.torch.kernels.gated import gated, gated_plainly
from localspec.backends.torch.kernels.norm import add_norm, add_norm_plainly, norm, norm_plainly
from localspec.backends.torch.kernels.rope_write import HeadNorms, Turn, rope_write, rope_write_plainly
from localspec.backends.torch.kernels.top_k import top_k, top_k_plainly
from localspec.backends.torch.rope import cos_and_sin, turns
from tests.torch.kernels.support import TOLERANCE, TYPES, error, generator

types = pytest.mark.parametrize("dtype", TYPES, ids=str)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=generator(seed))


# The sum and its norm


@types
@pytest.mark.parametrize("width", [64, 100])
@pytest.mark.parametrize("adds", [False, True], ids=["alone", "of a sum"])
def test_norm(dtype: torch.dtype, width: int, adds: bool) -> None:
    x, weight = random(5, width).to(dtype), random(width, seed=1).to(dtype)
    if not adds:
        assert error(norm(x, weight, 1e-5), norm_plainly(x, weight, 1e-5)) < TOLERANCE[dtype]
        return
    carried = random(5, width, seed=2).to(dtype)
    (total, found), (other, wanted) = (way(x, carried, weight, 1e-5) for way in (add_norm, add_norm_plainly))
    assert error(found, wanted) < TOLERANCE[dtype]
    assert torch.equal(total, other)
    assert torch.equal(carried, random(5, width, seed=2).to(dtype))  # as it was


def test_norm_in_torch_is_the_rule() -> None:
    x, weight = random(3, 16), random(16, seed=1)
    wanted = x / (x.double().square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight
    assert error(norm_plainly(x, weight, 1e-5), wanted) < 1e-6


# Positions


def turn_of(rows: int, turned: int, halves: bool) -> Turn:
    cos, sin = cos_and_sin(torch.arange(rows) * 37, turns(turned, 10000.0))
    return Turn(cos, sin, halves)


@types
@pytest.mark.parametrize("turned", [32, 20])
@pytest.mark.parametrize("halves", [False, True], ids=["neighbours", "halves"])
@pytest.mark.parametrize("norms", [False, True], ids=["as they are", "normed"])
def test_turn_and_write(dtype: torch.dtype, turned: int, halves: bool, norms: bool) -> None:
    rows, heads, kv_heads, each = 4, 3, 2, 32
    packed = random(rows, (heads + 2 * kv_heads) * each).to(dtype)
    slots = torch.tensor([7, -1, 0, 3], dtype=torch.int32)
    weights = HeadNorms(random(each, seed=1).to(dtype), random(each, seed=2).to(dtype), 1e-6) if norms else None
    sides = []
    for write in (rope_write, rope_write_plainly):
        own = packed.clone()
        q, k, v = (
            part.unflatten(1, (-1, each)) for part in own.split([heads * each, kv_heads * each, kv_heads * each], 1)
        )
        keys, values = torch.full((2, kv_heads, 9, each), 5.0, dtype=dtype).transpose(1, 2)
        write(q, k, v, turn_of(rows, turned, halves), slots, keys, values, weights)
        sides.append((q, keys, values))
    for found, wanted in zip(*sides, strict=True):
        assert error(found, wanted) < TOLERANCE[dtype]
    assert (sides[0][1][[1, 2, 4, 5, 6, 8]] == 5).all()
    assert torch.equal(sides[0][2], sides[1][2])


@pytest.mark.parametrize("halves", [False, True], ids=["neighbours", "halves"])
def test_turn_in_torch_is_the_rule(halves: bool) -> None:
    """Pairs are complex numbers, multiplied with others of length 1."""

    def pairs(x: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=-1) if halves else (x[..., ::2], x[..., 1::2])
        return torch.complex(first, second)

    q, k = random(4, 2, 16), random(4, 1, 16, seed=1)
    pool, turn = torch.zeros(2, 4, 1, 16), turn_of(4, 16, halves)
    wanted = pairs(q) * torch.complex(turn.cos, turn.sin)[:, None]
    rope_write_plainly(q, k, k, turn, torch.arange(4, dtype=torch.int32), pool[0], pool[1])
    assert (pairs(q) - wanted).abs().max() < 1e-5


# The gate


@types
@pytest.mark.parametrize("gelu", [False, True], ids=["silu", "gelu"])
def test_gate(dtype: torch.dtype, gelu: bool) -> None:
    gate, up = random(3, 2 * 1100).to(dtype).chunk(2, dim=1)
    wanted = gated_plainly(gate.float(), up.float(), gelu=gelu)
    assert error(gated(gate, up, gelu=gelu), wanted) < TOLERANCE[dtype]


# What stays


def test_commit_keeps_a_path_and_loses_no_slot() -> None:
    table = torch.randperm(4 * 80, generator=generator(3)).view(4, 80).int()
    before, lengths = table.clone(), torch.tensor([0, 7, 12, 16], dtype=torch.int32)
    nodes = torch.tensor([64, 9, 5, 3], dtype=torch.int32)
    paths = torch.zeros((4, 64), dtype=torch.int32)
    counts = torch.tensor([6, 4, 0, 3], dtype=torch.int32)
    for seq, path in enumerate(([0, 3, 17, 18, 40, 63], [0, 2, 3, 8], [], [0, 1, 2])):
        paths[seq, : len(path)] = torch.tensor(path, dtype=torch.int32)
    other, other_lengths = table.clone(), lengths.clone()
    commit(table, lengths, nodes, paths, counts)
    commit_plainly(other, other_lengths, nodes, paths, counts)
    assert torch.equal(table, other)
    assert lengths.tolist() == other_lengths.tolist() == [6, 11, 12, 19]
    assert table[1, 7:11].tolist() == before[1, [7, 9, 10, 15]].tolist()
    assert torch.equal(table.sort(1).values, before.sort(1).values)


def test_rows_move() -> None:
    cache = random(3, 20, 1030)
    other = cache.clone()
    arguments = torch.tensor([5]).int(), torch.tensor([0, 2, 3, 9, 0, 0]).int(), torch.tensor([4]).int()
    move_rows(cache, *arguments)
    move_rows_plainly(other, *arguments)
    assert torch.equal(cache, other)
    assert not torch.equal(cache, random(3, 20, 1030))


# The likeliest


@types
@pytest.mark.parametrize(("n_vocab", "count"), [(9000, 10), (300, 40), (5, 5), (4096, 1)])
def test_top_k(dtype: torch.dtype, n_vocab: int, count: int) -> None:
    logits = (random(2, n_vocab) * 4).to(dtype)
    logits[0, 2] = torch.nan
    logits[1, 3] = -torch.inf
    scores, tokens = top_k(logits, count)
    wanted, wanted_tokens = top_k_plainly(logits, count)
    # Numbers of 16 bits are often equal: the lower token comes first.
    assert torch.equal(tokens, wanted_tokens)
    finite = wanted.isfinite()
    assert torch.equal(scores.isfinite(), finite)
    assert (scores - wanted)[finite].abs().max() < 1e-4
