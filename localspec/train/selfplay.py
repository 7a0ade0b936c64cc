"""Text to train on: the target writes conversations by itself, its own questions and its own answers.

A drafter learns what *this* target says: a quantised or fine-tuned one says other things than the model it was made
from. Rows advance side by side, one token each a pass. A row is one conversation; what its frame asks for (who speaks
next, how a question may begin) is put in, the rest is drawn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from localspec.backends.torch.attention import Cache
from localspec.backends.torch.llama import TorchLlama
from localspec.train.frame import Frame
from localspec.train.texts import Texts

#: How sure questions are drawn, and answers, by row: temperatures.
_QUESTIONS, _ANSWERS = 1.0, (0.0, 0.0, 0.6, 0.8, 1.0)
#: Tokens less likely than this share of the likeliest are not drawn.
_MIN_P = 0.06
#: Tokens a row between two looks at what was written.
_LOOK = 16


class Row(Protocol):
    """One text while it is written."""

    @property
    def given(self) -> bool:
        """Whether the next token is fixed."""

    @property
    def counts(self) -> bool:
        """Whether the next token is one to learn from."""

    @property
    def temperature(self) -> float: ...

    @property
    def over(self) -> bool:
        """Whether nothing more comes."""

    def next(self, drawn: int) -> int:
        """The token that comes next: one that is fixed, or ``drawn``."""


class Conversation:
    """Questions and answers in turn, all of them the target's own; the first question begins with ``begun``.

    ``heat`` is the temperature of answers; ``questions``: they are to learn from, too.
    """

    over = False

    def __init__(self, frame: Frame, begun: Sequence[int], heat: float, *, questions: bool = True) -> None:
        self._frame, self._heat, self._questions = frame, heat, questions
        self._given = deque([*frame.opening, *begun])
        self._answering = False

    @property
    def given(self) -> bool:
        return bool(self._given)

    @property
    def counts(self) -> bool:
        return not self._given and (self._questions or self._answering)

    @property
    def temperature(self) -> float:
        return self._heat if self._answering else _QUESTIONS

    def next(self, drawn: int) -> int:
        if self._given:
            return self._given.popleft()
        if drawn == self._frame.ends[self._answering]:
            self._answering = not self._answering
            self._given.extend(self._frame.answer if self._answering else self._frame.question)
        return drawn


class Answer:
    """The answer to ``prompt``, to its end or the end of the row."""

    def __init__(self, prompt: Sequence[int], ends: frozenset[int], heat: float) -> None:
        self._given, self._ends, self.temperature = deque(prompt), ends, heat
        self.over = False

    @property
    def given(self) -> bool:
        return bool(self._given)

    @property
    def counts(self) -> bool:
        return not self._given and not self.over

    def next(self, drawn: int) -> int:
        if self._given:
            return self._given.popleft()
        self.over = self.over or drawn in self._ends
        return drawn


def heat_of(row: int) -> float:
    """The temperature of answers in a row."""
    return _ANSWERS[row % len(_ANSWERS)]


def starters() -> list[str]:
    """How questions may begin."""
    return files("localspec.train").joinpath("starters.txt").read_text("utf-8").splitlines()


def written(
    model: TorchLlama,
    rows: Sequence[Row],
    length: int,
    seed: Sequence[int],
    *,
    begun: NDArray[np.int32] | None = None,
    look: Callable[[NDArray[np.int32]], None] = lambda _: None,
) -> Texts:
    """Has ``model`` write texts of ``length`` tokens; what follows the end of one counts for nothing.

    Args:
        rows: fresh ones.
        seed: of what is drawn.
        begun: what was written before, ``[rows, n]``: it goes on from there.
        look: is told now and then what is written so far.
    """
    text, weight = np.zeros((len(rows), length), np.int32), np.zeros((len(rows), length), np.float32)
    cache = Cache.of(model.shape, len(rows), length)
    start = 0 if begun is None else begun.shape[1]
    heat = np.zeros(len(rows), np.float32)
    scores: Tensor | None = None
    at = 0
    while at < length and not all(row.over for row in rows):
        if begun is not None and at < start:
            drawn = begun[:, at].tolist()
        elif scores is None:
            drawn = [0] * len(rows)
        else:
            heat[:] = [row.temperature for row in rows]
            drawn = _draw(scores, torch.from_numpy(heat), np.random.default_rng([*seed, at])).tolist()
        weight[:, at] = [row.counts for row in rows]
        text[:, at] = [row.next(token) for row, token in zip(rows, drawn, strict=True)]
        at += 1
        if at >= start:
            scores = _scores(model, text[:, cache.n : at], cache, rows)
            if at % _LOOK == 0:
                look(text[:, :at])
    return Texts(text, weight)


def _scores(model: TorchLlama, tokens: NDArray[np.int32], cache: Cache, rows: Sequence[Row]) -> Tensor | None:
    """Scores behind the last of ``tokens``; none if nothing is drawn next."""
    hidden = model.read(torch.from_numpy(tokens).long(), past=cache).hidden[:, -1]
    return None if all(row.given for row in rows) else hidden @ model.unembedding.T


def _draw(logits: Tensor, heat: Tensor, rng: np.random.Generator) -> Tensor:
    """A token a row; 0 degrees: the likeliest."""
    logits = logits - logits.amax(dim=1, keepdim=True)
    warm = logits / heat.clamp(min=1e-3)[:, None]
    warm[warm < np.log(_MIN_P)] = -torch.inf
    noise = torch.from_numpy(rng.gumbel(size=tuple(warm.shape)).astype(np.float32))
    return (warm + noise).argmax(dim=1)
