"""Random weights that keep the size of what goes through them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


def matrix(rng: np.random.Generator, rows: int, columns: int) -> Array:
    return rng.standard_normal((rows, columns), np.float32) / np.float32(np.sqrt(columns))


def scales(rng: np.random.Generator, n: int) -> Array:
    """Of a norm."""
    return 1 + rng.standard_normal(n, np.float32) / np.float32(5)
