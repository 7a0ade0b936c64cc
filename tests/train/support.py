"""Tiny trainings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from localspec.train.drive import Job, Trained, drive
from localspec.train.kinds import HeadKind, Kind, SmallKind
from localspec.train.run import Point
from localspec.train.sources import Corpus
from tests.support.gguf_files import TinyModel, TokenizerKeys

TARGET = TinyModel(layers=7, width=32, seed=5)
N_VOCAB = 600
KINDS: dict[str, Kind] = {"eagle3": HeadKind(64, "f32"), "draft": SmallKind(32, 1, "f32")}


def fewer_tokens(keys: TokenizerKeys) -> TokenizerKeys:
    """The first of a vocabulary: files are read in a moment, and nobody asks them for words."""
    for name in ("tokens", "token_type", "merges"):
        key = f"tokenizer.ggml.{name}"
        keys = keys.with_value(key, keys.keys[key][0][:N_VOCAB])
    return keys


class Deaf:
    """Hears of everything and says nothing; ``die_after`` steps the process is as good as killed."""

    def __init__(self, die_after: int | None = None, stop_after: int | None = None) -> None:
        self.points: list[Point] = []
        self.stopped = False
        self._steps = 0
        self._die_after, self._stop_after = die_after, stop_after

    @contextmanager
    def phase(self, what: str, whole: int | None) -> Iterator[Callable[[int, str], None]]:
        yield self._step if what == "learning" else lambda _count, _word: None

    def point(self, point: Point) -> None:
        self.points.append(point)

    def _step(self, _count: int, _word: str) -> None:
        self._steps += 1
        if self._steps == self._die_after:
            raise Killed
        self.stopped = self._steps == self._stop_after


class Killed(BaseException):
    """Nothing runs after it."""


def corpus(length: int = 40) -> Corpus:
    """Texts of few words, so that there is something to learn."""
    rng = np.random.default_rng(0)
    words = rng.integers(5, N_VOCAB, 12)
    texts = [[int(words[at]) for at in np.cumsum(rng.integers(1, 3, length)) % len(words)] for _ in range(12)]
    return Corpus(texts, [[1.0] * length for _ in texts], rows=12, length=length)


def job(folder: Path, target: Path, kind: str, tokens: int) -> Job:
    return Job(KINDS[kind], target, folder / f"{kind}.gguf", folder / f"{kind}.train", None, tokens, threads=1)


def trained(folder: Path, target: Path, kind: str, tokens: int = 4000, told: Deaf | None = None) -> Trained:
    return drive(job(folder, target, kind, tokens), corpus(), told or Deaf())
