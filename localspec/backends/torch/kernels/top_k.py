"""The likeliest tokens of each row, and how likely they are."""

from __future__ import annotations

import torch
from torch import Tensor

from localspec.backends.torch.kernels.jit import Launch, ceil_div, kernel, power_of_two, tl

_BLOCK = 4096


@kernel
def _ordered(x, token):
    """A number that compares as ``x`` does, and among equals the lower token first."""
    bits = x.to(tl.int32, bitcast=True)
    bits = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return (bits.to(tl.int64) << 32) + (0x7FFFFFFF - token).to(tl.int64)


@kernel
def _part(LOGITS, FOUND, BEST, TOTAL, n_vocab, stride, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    token = block * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(LOGITS + row * stride + token, mask=token < n_vocab, other=float("-inf")).to(tl.float32)
    # No token is chosen for what is not a number.
    x = tl.where(x == x, x, float("-inf"))
    best = tl.max(x, 0)
    at = row * tl.num_programs(1) + block
    tl.store(BEST + at, best)
    tl.store(TOTAL + at, tl.sum(tl.exp(x - tl.where(best == float("-inf"), 0.0, best)), 0))
    keys = _ordered(x, token)
    for i in range(COUNT):
        key = tl.max(keys, 0)
        tl.store(FOUND + at * COUNT + i, key)
        keys = tl.where(keys == key, -0x7FFFFFFFFFFFFFFF, keys)


@kernel
def _merge(FOUND, BEST, TOTAL, SCORES, TOKENS, blocks, COUNT: tl.constexpr, BLOCKS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    block = tl.arange(0, BLOCKS)
    best = tl.load(BEST + row * blocks + block, mask=block < blocks, other=float("-inf"))
    total = tl.load(TOTAL + row * blocks + block, mask=block < blocks, other=0.0)
    most = tl.max(best, 0)
    below = most + tl.log(tl.sum(total * tl.exp(best - most), 0))
    at = tl.arange(0, BLOCK)
    keys = tl.load(FOUND + row * blocks * COUNT + at, mask=at < blocks * COUNT, other=-0x7FFFFFFFFFFFFFFF)
    for i in range(COUNT):
        key = tl.max(keys, 0)
        bits = (key >> 32).to(tl.int32)
        x = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
        tl.store(SCORES + row * COUNT + i, x - below)
        tl.store(TOKENS + row * COUNT + i, 0x7FFFFFFF - (key & 0xFFFFFFFF).to(tl.int32))
        keys = tl.where(keys == key, -0x7FFFFFFFFFFFFFFF, keys)


def launches(logits: Tensor, scores: Tensor, tokens: Tensor) -> list[Launch]:
    rows, n_vocab = logits.shape
    count, blocks = scores.shape[1], ceil_div(n_vocab, _BLOCK)
    found = torch.empty((rows, blocks, count), dtype=torch.int64, device=logits.device)
    best, total = torch.empty((2, rows, blocks), dtype=torch.float32, device=logits.device)
    part = Launch(
        _part,
        (rows, blocks),
        (logits, found, best, total, n_vocab, logits.stride(0)),
        {"COUNT": count, "BLOCK": _BLOCK},
        8,
    )
    merge = Launch(
        _merge,
        (rows,),
        (found, best, total, scores, tokens, blocks),
        {"COUNT": count, "BLOCKS": power_of_two(blocks), "BLOCK": power_of_two(blocks * count)},
    )
    return [part, merge]


def top_k(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Log-probabilities (float32) and tokens (int32) of the ``count`` likeliest of each row of ``logits``
    ``[rows, vocabulary]``, the likeliest first, of equals the lower one: ``[rows, count]``."""
    assert logits.stride(1) == 1
    assert 0 < count <= min(64, logits.shape[1])
    shape = (len(logits), count)
    scores = torch.empty(shape, dtype=torch.float32, device=logits.device)
    tokens = torch.empty(shape, dtype=torch.int32, device=logits.device)
    for launch in launches(logits, scores, tokens):
        launch.run()
    return scores, tokens


def top_k_plainly(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """`top_k` in torch."""
    wide = logits.float().nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)
    scores, tokens = wide.log_softmax(-1).sort(dim=-1, descending=True, stable=True)
    return scores[:, :count], tokens[:, :count].int()
