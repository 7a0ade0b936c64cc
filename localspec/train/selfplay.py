"""Text to train on: the target writes conversations by itself, its own questions and its own answers.

A drafter learns what *this* target says: a quantised or fine-tuned one says other things than the model it was made
from. Rows advance side by side, one token each a pass. A row is one conversation; what its frame asks for (who speaks
next, how a question may begin) is put in, the rest is drawn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from localspec.backends.torch.llama import Cache, TorchLlama

#: How sure a question and an answer are drawn: (temperature of questions, temperatures of answers by row).
_QUESTIONS = 1.0
_ANSWERS = (0.0, 0.0, 0.6, 0.8, 1.0)
#: Tokens less likely than this share of the likeliest are not drawn.
_MIN_P = 0.06


@dataclass(frozen=True, slots=True)
class Frame:
    """A conversation's scaffolding in tokens: what opens it, a question and an answer, and what ends either."""

    opening: tuple[int, ...]
    question: tuple[int, ...]
    answer: tuple[int, ...]
    end: int


def starters() -> list[str]:
    """How questions may begin."""
    return files("localspec.train").joinpath("starters.txt").read_text("utf-8").splitlines()


def converse(
    model: TorchLlama, frame: Frame, openings: Sequence[Sequence[int]], length: int, rng: np.random.Generator
) -> NDArray[np.int32]:
    """Conversations ``[rows, length]``, one for each of ``openings``: how its first question begins, may be nothing."""
    rows = [_Row(frame, begun, at) for at, begun in enumerate(openings)]
    cache = Cache.of(model.shape, len(rows), length)
    text = np.zeros((len(rows), length), np.int32)
    drawn: list[int] = [0] * len(rows)
    for at in range(length):
        text[:, at] = [row.next(token) for row, token in zip(rows, drawn, strict=True)]
        hidden = model.read(torch.from_numpy(text[:, at : at + 1]).long(), cache=cache).hidden[:, 0]
        if any(row.draws for row in rows):
            heat = torch.tensor([row.temperature for row in rows])
            drawn = _draw(hidden @ model.unembedding.T, heat, rng).tolist()
    return text


class _Row:
    """One conversation: what is put in next, and who speaks."""

    def __init__(self, frame: Frame, begun: Sequence[int], number: int) -> None:
        self._frame = frame
        self._given = deque([*frame.opening, *frame.question, *begun])
        self._answer = _ANSWERS[number % len(_ANSWERS)]
        self._answering = False

    @property
    def draws(self) -> bool:
        return not self._given

    @property
    def temperature(self) -> float:
        return self._answer if self._answering else _QUESTIONS

    def next(self, drawn: int) -> int:
        """The token that comes next: one that is due, or ``drawn``."""
        if self._given:
            return self._given.popleft()
        if drawn == self._frame.end:
            self._answering = not self._answering
            self._given.extend(self._frame.answer if self._answering else self._frame.question)
        return drawn


def _draw(logits: Tensor, heat: Tensor, rng: np.random.Generator) -> Tensor:
    """A token a row; 0 degrees: the likeliest."""
    logits = logits - logits.amax(dim=1, keepdim=True)
    warm = logits / heat.clamp(min=1e-3)[:, None]
    warm[warm < np.log(_MIN_P)] = -torch.inf
    noise = torch.from_numpy(rng.gumbel(size=tuple(warm.shape)).astype(np.float32))
    return (warm + noise).argmax(dim=1)
