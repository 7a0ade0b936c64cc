"""What layers of a transformer compute, written plainly: rows are ``[n, width]``, of a head ``[n, heads, each]``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Seen = NDArray[np.bool_]


def norm(rows: Array, weight: Array) -> Array:
    """RMS norm over the last axis."""
    normed: Array = rows / np.sqrt((rows**2).mean(axis=-1, keepdims=True) + 1e-5) * weight
    return normed


def silu(x: Array) -> Array:
    done: Array = x / (1 + np.exp(-x))
    return done


def gated(rows: Array, gate: Array, up: Array, down: Array) -> Array:
    """A feed-forward network with SiLU."""
    mixed: Array = (silu(rows @ gate.T) * (rows @ up.T)) @ down.T
    return mixed


def pairs_turned(rows: Array, positions: NDArray[np.int_]) -> Array:
    """RoPE over neighbouring pairs."""
    cos, sin = _angles(rows, positions)
    even, odd = rows[..., 0::2], rows[..., 1::2]
    turned = np.empty_like(rows)
    turned[..., 0::2], turned[..., 1::2] = even * cos - odd * sin, even * sin + odd * cos
    return turned


def halves_turned(rows: Array, positions: NDArray[np.int_], waves: NDArray[np.floating] | None = None) -> Array:
    """RoPE over pairs that lie half a head apart; ``waves`` are their radians a position, if they are not the usual."""
    cos, sin = _angles(rows, positions, waves)
    first, second = np.split(rows, 2, axis=2)
    return np.concatenate([first * cos - second * sin, first * sin + second * cos], axis=2)


def slowed(wave: float, rope: Mapping[str, Any]) -> float:
    """Llama 3's rule for longer texts, by wave lengths."""
    length, room = 2 * np.pi / wave, rope["original_max_position_embeddings"]
    if length < room / rope["high_freq_factor"]:
        return wave
    if length > room / rope["low_freq_factor"]:
        return float(wave / rope["factor"])
    smooth = (room / length - rope["low_freq_factor"]) / (rope["high_freq_factor"] - rope["low_freq_factor"])
    return float((1 - smooth) * wave / rope["factor"] + smooth * wave)


#: What configs with scaled positions say.
LLAMA3: Mapping[str, Any] = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def _angles(rows: Array, positions: NDArray[np.int_], waves: NDArray[np.floating] | None = None) -> tuple[Array, Array]:
    each = rows.shape[2]
    waves = 10000.0 ** (-np.arange(0, each, 2) / each) if waves is None else waves
    angles = (positions[:, None] * waves).astype(np.float32)
    return np.cos(angles)[:, None], np.sin(angles)[:, None]


def attended(query: Array, key: Array, value: Array, seen: Seen) -> Array:
    """``[queries, width]``; several heads of queries may share one of keys. ``seen`` is ``[queries, keys]``."""
    key, value = (np.repeat(part, query.shape[1] // part.shape[1], axis=1) for part in (key, value))
    scores = np.einsum("qhd,khd->hqk", query, key) / np.sqrt(query.shape[2])
    scores[:, ~seen] = -np.inf
    shares = np.exp(scores - scores.max(axis=2, keepdims=True))
    shares /= shares.sum(axis=2, keepdims=True)
    mixed: Array = np.einsum("hqk,khd->qhd", shares, value).reshape(len(query), -1)
    return mixed


def ancestry(parents: Sequence[int]) -> tuple[Seen, NDArray[np.int_]]:
    """What each row of a tree sees, itself included, and how deep it lies."""
    n = len(parents)
    seen, depths = np.eye(n, dtype=bool), np.zeros(n, int)
    for row, parent in enumerate(parents):
        if parent >= 0:
            seen[row] |= seen[parent]
            depths[row] = depths[parent] + 1
    return seen, depths
