"""Where texts to train on come from: the target alone, its answers to questions, a corpus, or what was said before."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from localspec.backends.torch.llama import TorchLlama
from localspec.errors import UsageError
from localspec.train.frame import Frame
from localspec.train.selfplay import Answer, Conversation, Row, heat_of, starters, written
from localspec.train.texts import Texts
from localspec.vocab import Vocab

#: Tokens of a text, and texts that are written side by side; as many only measure.
LENGTH, ROWS, HELD_ROWS = 384, 64, 24
#: Share of conversations whose first question begins as the target likes.
_FREE = 0.35
#: One in so many questions or pieces of a corpus only measures.
_HOLD = 10
#: By how much more a token counts that was guessed wrong in real use.
_REJECTED = 3.0
#: Temperature of answers that measure.
_COLD = 0.0


@dataclass(frozen=True, slots=True)
class Desk:
    """Who writes, what was written of this part before, and who is told of more."""

    target: TorchLlama
    seed: int
    begun: NDArray[np.int32] | None
    look: Callable[[NDArray[np.int32]], None]


class Source(Protocol):
    """Parts of texts by number."""

    @property
    def about(self) -> str:
        """Where they come from."""

    def part(self, number: int, desk: Desk) -> Texts | None:
        """Texts to learn from; ``None``: there are no more."""

    def held(self, desk: Desk) -> Texts:
        """Texts that only measure."""


@dataclass(frozen=True, slots=True)
class SelfPlay:
    """The target writes both sides of conversations, without end. ``begun`` are ways to begin a first question."""

    frame: Frame
    begun: Sequence[Sequence[int]]
    rows: int = ROWS
    length: int = LENGTH
    about: str = "conversations that the target wrote by itself"

    @classmethod
    def of(cls, frame: Frame, vocab: Vocab) -> SelfPlay:
        return cls(frame, [vocab.tokenize(one) for one in starters()])

    def part(self, number: int, desk: Desk) -> Texts:
        rng = np.random.default_rng([desk.seed, number])
        rows = [Conversation(self.frame, self._begun(rng), heat_of(row)) for row in range(self.rows)]
        return self._written(rows, number, desk)

    def held(self, desk: Desk) -> Texts:
        rng = np.random.default_rng([desk.seed + 1, 0])
        count = min(self.rows, HELD_ROWS)
        rows = [Conversation(self.frame, self._begun(rng), _COLD, questions=False) for _ in range(count)]
        return self._written(rows, -1, desk)

    def _begun(self, rng: np.random.Generator) -> Sequence[int]:
        return () if not self.begun or rng.random() < _FREE else self.begun[int(rng.integers(len(self.begun)))]

    def _written(self, rows: Sequence[Row], number: int, desk: Desk) -> Texts:
        return written(desk.target, rows, self.length, (desk.seed, number + 1), begun=desk.begun, look=desk.look)


@dataclass(frozen=True, slots=True)
class Questions:
    """The target answers ``prompts`` (in tokens, up to where the answer begins), once each."""

    prompts: Sequence[Sequence[int]]
    ends: frozenset[int]
    rows: int = ROWS
    length: int = LENGTH
    about: str = "answers of the target to questions that were given"

    def part(self, number: int, desk: Desk) -> Texts | None:
        asked = [one for at, one in enumerate(self.prompts) if at % _HOLD] or list(self.prompts)
        asked = asked[number * self.rows : (number + 1) * self.rows]
        return self._answered(asked, [heat_of(row) for row in range(len(asked))], number, desk) if asked else None

    def held(self, desk: Desk) -> Texts:
        asked = list(self.prompts[::_HOLD])[:HELD_ROWS]
        return self._answered(asked, [_COLD] * len(asked), -1, desk)

    def _answered(self, asked: Sequence[Sequence[int]], heat: Sequence[float], number: int, desk: Desk) -> Texts:
        rows = [Answer(one[-self.length // 2 :], self.ends, warm) for one, warm in zip(asked, heat, strict=True)]
        return written(desk.target, rows, self.length, (desk.seed, number + 1), begun=desk.begun, look=desk.look)


@dataclass(frozen=True, slots=True)
class Corpus:
    """Texts as they are, in pieces; ``weights`` say how much each token counts."""

    texts: Sequence[Sequence[int]]
    weights: Sequence[Sequence[float]]
    rows: int = ROWS
    length: int = LENGTH
    about: str = "texts that were given"

    @classmethod
    def of(cls, texts: Sequence[Sequence[int]]) -> Corpus:
        return cls(texts, [[1.0] * len(text) for text in texts])

    def part(self, number: int, desk: Desk) -> Texts | None:
        pieces = [one for at, one in enumerate(self._pieces()) if at % _HOLD] or list(self._pieces())
        return _texts(pieces[number * self.rows : (number + 1) * self.rows], self.length)

    def held(self, desk: Desk) -> Texts:
        held = _texts(list(self._pieces())[::_HOLD][:HELD_ROWS], self.length)
        if held is None:
            raise UsageError("there is no text to train on", hint="Give files that are not empty.")
        return held

    def _pieces(self) -> Iterator[tuple[Sequence[int], Sequence[float]]]:
        for text, weight in zip(self.texts, self.weights, strict=True):
            for start in range(0, len(text), self.length):
                yield text[start : start + self.length], weight[start : start + self.length]


def of_log(lines: Iterable[str], name: str) -> Corpus:
    """Answers of real use, as ``/trace FILE`` keeps them: tokens that were guessed wrong count more.

    Raises:
        UsageError: a line is no step of a trace.
    """
    texts, weights = list[list[int]](), list[list[float]]()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            step = json.loads(line)
            begins, tokens, wrong = step["at"] == 0, [int(one["id"]) for one in step["tokens"]], _rejected(step)
        except (ValueError, KeyError, TypeError):
            raise UsageError(
                f"line {number} of {name} is no step of a trace", hint="Keep one with /trace FILE in the chat."
            ) from None
        if begins or not texts:
            texts.append([])
            weights.append([])
        texts[-1] += tokens
        weights[-1] += [_REJECTED if wrong and at == len(tokens) - 1 else 1.0 for at in range(len(tokens))]
    return Corpus(texts, weights, about="answers of real use")


def _rejected(step: Any) -> bool:
    """Whether the last token of a step is what the target drew in place of a guess."""
    return bool(step["draft_n_accepted"] < step["tested"])


def read_log(path: Path) -> Corpus:
    """As `of_log`, of a file.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        return of_log(path.read_text("utf-8").splitlines(), path.name)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}", hint="Check --from-log.") from None


def _texts(pieces: Sequence[tuple[Sequence[int], Sequence[float]]], length: int) -> Texts | None:
    if not pieces:
        return None
    tokens, weight = np.zeros((len(pieces), length), np.int32), np.zeros((len(pieces), length), np.float32)
    for row, (text, counts) in enumerate(pieces):
        tokens[row, : len(text)], weight[row, : len(text)] = text, counts
    weight[:, 0] = 0  # nothing says it
    return Texts(tokens, weight)
