"""One answer of a server as it comes in: the events that an engine here would give, and its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from localspec.client import sse
from localspec.client.counting import UNKNOWN
from localspec.client.numbers import clocked, count, part, statistics
from localspec.text.thinking import Tags
from localspec.types import (
    Alternative,
    Finished,
    FinishReason,
    SpecStats,
    StepStats,
    Timings,
    TokenInfo,
    Tokens,
)


class Course:
    """Takes the objects of a stream.

    Servers tell thinking and answer apart; engines give one text, in which tags do. So tags are put back.

    Args:
        number: of the request.
        tags: those of the model; ``None``: the prompt is no conversation, and nothing is thinking.
        named: the chat template names them: without them an answer may be taken for thinking.
        began: when it was asked.
    """

    def __init__(self, number: int, tags: Tags | None, *, named: bool, began: float) -> None:
        self._number = number
        self._tags = tags
        self._named = named
        self._kind = ""  # of what came last
        self._began = began
        self._first = self._last = 0.0
        self._n = self._first_n = 0
        self._usage: Mapping[str, Any] = {}
        self._timings: Mapping[str, Any] = {}
        self._speculation: Mapping[str, Any] = {}
        self._reason: str | None = None
        self._closed = False

    @property
    def whole(self) -> bool:
        """The server has said that this is all."""
        return self._closed or self._reason is not None

    def take(self, now: float, event: Mapping[str, Any]) -> Tokens | None:
        """What an object brings, if anything; an empty one closes the stream."""
        self._closed = self._closed or not event
        self._usage = part(event, "usage") or self._usage
        self._timings = part(event, "timings") or self._timings
        self._speculation = part(event, "speculation") or self._speculation
        reason = sse.choice(event).get("finish_reason")
        self._reason = reason if isinstance(reason, str) else self._reason
        tokens = _tokens(sse.choice(event).get("logprobs"))
        text = self._told_apart(event)
        if not text and not tokens:
            return None
        return Tokens(self._number, text, tokens, self._counted(now, len(tokens)))

    def _told_apart(self, event: Mapping[str, Any]) -> str:
        thought, answered = sse.thought(event), sse.answered(event)
        if self._tags is None:
            return thought + answered
        text = ""
        if thought:
            text += (self._tags.open if not self._kind else "") + thought
            self._kind = self._kind or "thinking"
        if answered:
            if self._kind == "thinking":
                text += self._tags.close
            elif not self._kind and self._named:
                text += self._tags.open + self._tags.close
            text += answered
            self._kind = "answer"
        return text

    def _counted(self, now: float, known: int) -> StepStats:
        """A chunk as a step without guesses: what of it was guessed is told at the end, if at all."""
        n = max(count(self._timings, "predicted_n") - self._n, known, 1 if not self._timings else 0)
        seconds = now - self._last if self._last else 0.0
        if not self._first:
            self._first, self._first_n = now, n
        self._last = now
        self._n += n
        return StepStats(0, 0, 0, n, 0, 0.0, seconds, 0.0)

    def finished(self, reason: FinishReason | None = None, guesses: SpecStats | None = None) -> Finished:
        """Its end.

        Args:
            reason: why, if the server is not asked.
            guesses: what is known of them from elsewhere.
        """
        seen = Timings(
            prompt_n=0,
            cache_n=0,
            prompt_s=max(self._first - self._began, 0.0),
            ttft_s=max(self._first - self._began, 0.0),
            predicted_n=self._n,
            predicted_s=self._last - self._first,
            first_n=self._first_n,
        )
        ended: FinishReason = reason or ("length" if self._reason == "length" else "stop")
        stats = statistics(self._speculation, self._timings)
        if guesses is not None and not stats.draft_n:
            stats = guesses
        return Finished(self._number, ended, (), None, clocked(self._usage, self._timings, seen), stats)


def _tokens(found: object) -> tuple[TokenInfo, ...]:
    """Tokens with their log-probabilities, in OpenAI's form of a chat or in that of a completed text."""
    if not isinstance(found, dict):
        return ()
    content = found.get("content")
    if isinstance(content, list):
        return tuple(_token(one) for one in content if isinstance(one, dict))
    texts, likely, best = (found.get(name) for name in ("tokens", "token_logprobs", "top_logprobs"))
    if not isinstance(texts, list) or not isinstance(likely, list):
        return ()
    tops = best if isinstance(best, list) else [{}] * len(texts)
    return tuple(
        TokenInfo(UNKNOWN, str(text).encode(), logprob=_real(logprob), top=_rivals(top))
        for text, logprob, top in zip(texts, likely, tops, strict=False)
    )


def _token(one: Mapping[str, Any]) -> TokenInfo:
    others = one.get("top_logprobs")
    rivals = [other for other in others if isinstance(other, dict)] if isinstance(others, list) else []
    top = tuple(Alternative(_id(other), _piece(other), _real(other.get("logprob")) or 0.0) for other in rivals)
    return TokenInfo(_id(one), _piece(one), logprob=_real(one.get("logprob")), top=top)


def _rivals(top: object) -> tuple[Alternative, ...]:
    found = top if isinstance(top, dict) else {}
    return tuple(Alternative(UNKNOWN, str(text).encode(), _real(logprob) or 0.0) for text, logprob in found.items())


def _id(one: Mapping[str, Any]) -> int:
    found = one.get("id")
    return found if isinstance(found, int) else UNKNOWN


def _piece(one: Mapping[str, Any]) -> bytes:
    raw: Sequence[Any] | None = one.get("bytes")
    if isinstance(raw, list) and all(isinstance(byte, int) and 0 <= byte < 256 for byte in raw):
        return bytes(raw)
    return str(one.get("token", "")).encode()


def _real(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
