"""Texts to train on, in tokens: rows of equal length, a part a file, in a folder that may grow while it is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from localspec.train.whole import whole

#: Names of the parts that are trained on, and of those that only measure.
PART, HELD = "part", "held"


@dataclass(frozen=True, slots=True)
class Texts:
    """``tokens`` ``[rows, n]``, and by how much a guess of each counts: 0 where nobody drew it (a frame, padding)."""

    tokens: NDArray[np.int32]
    weight: NDArray[np.float32]

    def write(self, path: Path) -> None:
        """The file appears whole or not at all."""
        with whole(path) as part, part.open("wb") as file:
            np.savez_compressed(file, tokens=self.tokens, weight=self.weight.astype(np.float16))

    @classmethod
    def read(cls, path: Path) -> Texts:
        with np.load(path) as file:
            return cls(file["tokens"].astype(np.int32), file["weight"].astype(np.float32))

    def portions(self, count: int) -> Iterator[Texts]:
        """So many rows each, in order."""
        for start in range(0, len(self.tokens), count):
            yield Texts(self.tokens[start : start + count], self.weight[start : start + count])


def parts(folder: Path, kind: str) -> list[Path]:
    """The files of a kind, in order."""
    return sorted(folder.glob(f"{kind}-*.npz"))
