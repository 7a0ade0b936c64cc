"""One answer as it comes: its text told apart from thinking and calls, its tokens, its numbers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from localspec.report import speculation_record, timings_record
from localspec.server.calls import Call, CallReader
from localspec.server.wishes import Wish
from localspec.text.thinking import Piece
from localspec.types import (
    Event,
    Failed,
    Finished,
    GenerationRequest,
    Prefill,
    SpecStats,
    Started,
    StepStats,
    Timings,
    TokenInfo,
    Tokens,
)


@dataclass(frozen=True, slots=True)
class Delta:
    """What is new: text of the answer, thinking, calls, tokens; ``progress`` are tokens of the prompt that were read,
    while there is nothing else."""

    text: str = ""
    thinking: str = ""
    calls: tuple[Call, ...] = ()
    tokens: tuple[TokenInfo, ...] = ()
    progress: int | None = None


class Choice:
    """Takes the events of one answer.

    Args:
        index: its number among the choices.
        request: what was asked.
        wish: what of it is wanted, and how.
        clock: seconds.
    """

    def __init__(
        self, index: int, request: GenerationRequest, wish: Wish, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.index = index
        self.request = request
        self.wish = wish
        self.text = ""
        self.thinking = ""
        self.calls: tuple[Call, ...] = ()
        self.tokens: list[TokenInfo] = []
        self.started: Started | None = None
        self.finished: Finished | None = None
        self.failed: Failed | None = None
        self._splitter = None if wish.reasoning is None else wish.reasoning.splitter(continued=_goes_on(request))
        self._reader = CallReader(wish.tools.names) if wish.tools.offered else None
        self._clock = clock
        self._asked = clock()
        self._began = self._first = self._last = 0.0
        self._first_n = 0
        self._steps: StepStats | None = None

    def take(self, event: Event) -> Delta | None:
        """The next event; what it brings for the client, if anything."""
        match event:
            case Started():
                self.started, self._began = event, self._asked + event.waited_s
                return None
            case Prefill():
                return Delta(progress=event.done)
            case Tokens():
                self._count(event)
                pieces = [Piece("answer", event.text)] if self._splitter is None else self._splitter.push(event.text)
                return self._delta(pieces, event.tokens)
            case Finished():
                self.finished = event
                return self._rest()
            case Failed():
                self.failed = event
        return None

    def _count(self, event: Tokens) -> None:
        self._last = self._clock()
        self.tokens += event.tokens
        if not self._first:
            self._first, self._first_n = self._last, len(event.tokens)
        if event.step is not None:
            self._steps = event.step if self._steps is None else self._steps + event.step

    def _delta(self, pieces: list[Piece], tokens: tuple[TokenInfo, ...]) -> Delta | None:
        thinking = "".join(piece.text for piece in pieces if piece.kind == "thinking")
        text = "".join(piece.text for piece in pieces if piece.kind == "answer")
        if self._reader is not None:
            text = self._reader.push(text)
        self.text += text
        self.thinking += thinking
        return Delta(text, thinking, (), tokens) if text or thinking or tokens else None

    def _rest(self) -> Delta | None:
        """What was held back, and the calls."""
        delta = self._delta([] if self._splitter is None else self._splitter.finish(), ()) or Delta()
        if self._reader is None:
            return delta if delta.text or delta.thinking else None
        more, self.calls = self._reader.finish()
        self.text += more
        return Delta(delta.text + more, delta.thinking, self.calls)

    # -- what is told of it

    @property
    def reason(self) -> str | None:
        """OpenAI's ``finish_reason``."""
        if self.finished is None:
            return None
        if self.calls:
            return "tool_calls"
        return "stop" if self.finished.reason == "stop" else "length"

    @property
    def seed(self) -> int | None:
        """The one in use, drawn where none was given; ``None`` before it has begun."""
        return self.request.sampling.seed if self.started is None else self.started.seed

    @property
    def prompt_n(self) -> int:
        if self.finished is not None:
            return self.finished.timings.prompt_n
        return 0 if self.started is None else self.started.prompt_n

    @property
    def cache_n(self) -> int:
        return 0 if self.started is None else self.started.cache_n

    @property
    def completion_n(self) -> int:
        return len(self.tokens) if self.finished is None else len(self.finished.ids)

    def timings(self) -> dict[str, Any]:
        """llama.cpp's ``timings``: the engine's own at the end, until then as seen from here."""
        if self.finished is not None:
            return timings_record(self.finished.timings, self.finished.stats)
        now = Timings(
            prompt_n=self.prompt_n,
            cache_n=self.cache_n,
            prompt_s=(self._first or self._clock()) - (self._began or self._asked),
            ttft_s=(self._first or self._clock()) - self._asked,
            predicted_n=len(self.tokens),
            predicted_s=self._last - self._first,
            first_n=self._first_n,
        )
        return timings_record(now, self._stats())

    def _stats(self) -> SpecStats:
        steps = self._steps
        if steps is None:
            return SpecStats()
        return SpecStats(draft_n=steps.draft_n, tested=steps.tested, accepted=steps.accepted, emitted=steps.emitted)

    def speculation(self) -> dict[str, Any] | None:
        """Statistics of guesses, when the answer is over."""
        return None if self.finished is None else speculation_record(self.finished.stats)


def _goes_on(request: GenerationRequest) -> bool:
    """Whether it is the rest of an answer that was begun."""
    return bool(request.messages) and request.messages is not None and request.messages[-1].role == "assistant"


def usage(choices: list[Choice], wish: Wish) -> dict[str, Any]:
    """OpenAI's ``usage``: a prompt counts once, however many choices it has."""
    firsts = choices[:: wish.each]
    prompt, completion = sum(one.prompt_n for one in firsts), sum(one.completion_n for one in choices)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(one.cache_n for one in firsts)},
    }
