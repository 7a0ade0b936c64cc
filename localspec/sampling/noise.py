"""Noise that is a pure function of what it is for: (seed, stream, output index, token, salt).

Nothing is drawn in sequence, so it does not matter who asks first, how often, or for how many positions
ahead: the same question has the same answer. That is what makes the text of a seed independent of the
drafter, and what lets a drafter look at the noise its guess will be judged by.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

_MASK = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15  # 2^64 / golden ratio, odd
_MUL_1 = 0xBF58476D1CE4E5B9  # multipliers and shifts: Stafford's variant 13 of the murmur3 finaliser
_MUL_2 = 0x94D049BB133111EB


class Stream(IntEnum):
    """What the noise is for. Streams are independent of each other."""

    TARGET = 1
    DRAFT = 2
    ACCEPT = 3
    RESIDUAL = 4
    XTC = 5


def _key(*words: int) -> int:
    """Words (taken modulo 2^64) → 64 mixed bits; each word goes through the mixer, so none cancels
    another."""
    key = 0
    for word in words:
        key = ((key ^ (word & _MASK)) + _STEP) & _MASK
        key = ((key ^ (key >> 30)) * _MUL_1) & _MASK
        key = ((key ^ (key >> 27)) * _MUL_2) & _MASK
        key ^= key >> 31
    return key


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(_MUL_1)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(_MUL_2)
    return x ^ (x >> np.uint64(31))


def uniform(
    seed: int, stream: Stream, index: int, ids: NDArray[np.int32] | Sequence[int], salt: int = 0
) -> NDArray[np.float64]:
    """One number in the open interval (0, 1) for each of ``ids`` (not negative), shape ``[len(ids)]``."""
    x = np.asarray(ids).astype(np.uint64) ^ np.uint64(_key(seed, stream, index, salt))
    x = _mix(_mix(x) + np.uint64(_STEP))
    # 52 bits and a half: with 53 the largest would round to 1.
    uniforms: NDArray[np.float64] = ((x >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    return uniforms


def gumbel(
    seed: int, stream: Stream, index: int, ids: NDArray[np.int32] | Sequence[int], salt: int = 0
) -> NDArray[np.float64]:
    """Standard Gumbel noise for each of ``ids``: ``argmax(logp + gumbel)`` is a draw from ``exp(logp)``."""
    noise: NDArray[np.float64] = -np.log(-np.log(uniform(seed, stream, index, ids, salt)))
    return noise
