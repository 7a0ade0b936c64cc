"""Hidden states that wait to be taken in together: a pass for each would cost its share of every step, whether the
drafter is asked in it or not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from localspec.drafters.base import Features

# So many bytes of a text wait at most, but so many rows at least: a head that is not asked may never need them.
_BYTES, _ROWS = 4 << 20, 64


class Waiting:
    """Rows of one text, in order, of some ``layers``; ``len`` counts them."""

    def __init__(self, layers: Sequence[int]) -> None:
        self._layers = layers
        self._room: dict[int, NDArray[np.float32]] = {}
        self._rows, self._most = 0, _ROWS

    def __len__(self) -> int:
        return self._rows

    def take(self, features: Features, rows: Sequence[int], skipped: int) -> bool:
        """The target gives ``rows`` of the text, of which the first ``skipped`` are known: another reader may have
        missed them. Where there is a gap before them (``skipped`` < 0) nothing is taken: what follows it can be read
        only when it is filled. Whether so many wait now that they should be taken in."""
        if not 0 <= skipped < len(rows):
            return False
        self._add(features, rows[skipped:])
        return self._rows >= self._most

    def _add(self, features: Features, rows: Sequence[int]) -> None:
        """Copies them: the target's next pass writes over its own. Done in every step, so with little code: into room
        that is there."""
        start, end = self._rows, self._rows + len(rows)
        in_a_row = rows[-1] - rows[0] == len(rows) - 1  # they ascend
        picked = slice(rows[0], rows[-1] + 1) if in_a_row else list(rows)
        for layer in self._layers:
            states = features[layer]
            room = self._room.get(layer)
            if room is None or end > len(room):
                room = self._room[layer] = self._larger(room, end, states.shape[1])
            room[start:end] = states[picked]
        self._rows = end

    def _larger(self, room: NDArray[np.float32] | None, rows: int, width: int) -> NDArray[np.float32]:
        self._most = max(_BYTES // (width * 4 * len(self._layers)), _ROWS)
        larger = np.empty((max(rows, 2 * self._rows, 2 * _ROWS), width), np.float32)
        if room is not None:
            larger[: self._rows] = room[: self._rows]
        return larger

    @property
    def whole(self) -> Features:
        """All rows, views: gone with the next that are added."""
        return {layer: room[: self._rows] for layer, room in self._room.items()}

    def drop(self, rows: int) -> None:
        """The first so many are taken in."""
        for room in self._room.values():
            room[: self._rows - rows] = room[rows : self._rows]
        self._rows -= rows

    def cut(self, rows: int) -> None:
        """Only the first so many still stand."""
        self._rows = min(rows, self._rows)
