"""Hidden states that wait to be taken in together: a pass for each would cost its share of every step, whether the
drafter is asked in it or not."""

from __future__ import annotations

import numpy as np

from localspec.drafters.base import Features

_TOGETHER = 64  # rows; what waits longer only takes memory


class Waiting:
    """Rows of one text, in order; ``len`` counts them."""

    def __init__(self) -> None:
        self._parts: list[Features] = []
        self._rows = 0

    def __len__(self) -> int:
        return self._rows

    def add(self, features: Features) -> None:
        """Copies them: the target's next pass writes over its own."""
        self._parts.append({layer: states.copy() for layer, states in features.items()})
        self._rows += len(next(iter(features.values())))

    @property
    def is_full(self) -> bool:
        return self._rows >= _TOGETHER

    @property
    def whole(self) -> Features:
        """All rows, in one piece; at least one has to be there."""
        if len(self._parts) > 1:
            self._parts = [{layer: np.concatenate([one[layer] for one in self._parts]) for layer in self._parts[0]}]
        return self._parts[0]

    def clear(self) -> None:
        self._parts, self._rows = [], 0
