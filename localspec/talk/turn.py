"""One turn while it runs: its events, and what its answer has become so far."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

from localspec.text.thinking import Piece, ThinkingSplitter
from localspec.types import Event, Failed, Finished, Notice, Paced, Prefill, Started, Tokens


@dataclass(frozen=True, slots=True)
class Asked:
    """A turn begins: the question as it is sent, and how many of the last exchanges it takes the place of if it brings
    anything."""

    question: str
    replacing: int


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The oldest ``count`` of ``of`` exchanges no longer fit the context and are not sent."""

    count: int
    of: int

    @property
    def text(self) -> str:
        if self.count == 1:
            return f"the oldest exchange no longer fits and is left out (1 of {self.of})"
        return f"the {self.count} oldest exchanges no longer fit and are left out ({self.count} of {self.of})"


#: `Asked` comes first. A step's `Tokens` come before the pieces of text that they make.
TurnEvent = Asked | Piece | Started | Prefill | Tokens | Paced | Notice | LeftOut | Finished | Failed
#: Events of one turn; to be closed by whoever leaves it early.
Turn = Generator[TurnEvent, None, None]


class Answer:
    """One answer while it comes. ``hides`` keeps its thinking to itself."""

    def __init__(self, splitter: ThinkingSplitter, *, hides: bool) -> None:
        self.text = ""
        self.thinking = ""
        self.finished: Finished | None = None
        self.seed: int | None = None
        self._splitter = splitter
        self._hides = hides

    @property
    def stopped(self) -> bool:
        """It broke off: somebody stopped it, or the engine failed."""
        return self.finished is None or self.finished.reason == "cancelled"

    @property
    def worth_keeping(self) -> bool:
        """Something was shown, or the model chose to say nothing."""
        return not self.stopped or bool(self.text or self.thinking)

    def take(self, event: Event) -> Iterator[TurnEvent]:
        if isinstance(event, Tokens):
            yield event
            yield from self._pieces(self._splitter.push(event.text))
            return
        if isinstance(event, Finished | Failed):
            yield from self._pieces(self._splitter.finish())
        if isinstance(event, Started):
            self.seed = event.seed
        if isinstance(event, Finished):
            self.finished = event
        yield event

    def _pieces(self, pieces: Sequence[Piece]) -> Iterator[Piece]:
        for piece in pieces:
            if piece.kind == "answer":
                self.text += piece.text
            else:
                self.thinking += piece.text
            if piece.kind == "answer" or not self._hides:
                yield piece
