"""What the endpoints answer with: a protocol's objects made of choices."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any, Protocol

from localspec import __version__
from localspec.openai_records import chat_logprobs, entry, spelt, text_logprobs
from localspec.server.calls import Call
from localspec.server.choice import Choice, Delta, usage
from localspec.server.told import drawn
from localspec.server.wishes import Wish
from localspec.types import TokenInfo

Record = dict[str, Any]
_BUILD = f"localspec-{__version__}"


class Form(Protocol):
    """One protocol. Records become events of a stream, ``named`` ones with their type before them; ``last`` is what
    ends it. ``whole`` is the answer without a stream."""

    named: bool
    last: str

    def opening(self, choices: Sequence[Choice]) -> list[Record]: ...

    def delta(self, choice: Choice, delta: Delta) -> list[Record]: ...

    def end(self, choice: Choice) -> list[Record]: ...

    def closing(self, choices: Sequence[Choice]) -> list[Record]: ...

    def whole(self, choices: Sequence[Choice]) -> Any: ...


class _OpenAi:
    """What chat and text have in common. ``timings`` and ``speculation`` are no part of OpenAI's objects."""

    named, last = False, "data: [DONE]\n\n"

    def __init__(self, wish: Wish, prefix: str, kind: str, kind_of_chunks: str) -> None:
        self._wish = wish
        self._id = f"{prefix}-{secrets.token_hex(12)}"
        self._kind = kind
        self._kind_of_chunks = kind_of_chunks
        self._created = int(time.time())

    def _record(self, choices: list[Record], kind: str) -> Record:
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": self._wish.model,
            "system_fingerprint": _BUILD,
            "choices": choices,
        }

    def closing(self, choices: Sequence[Choice]) -> list[Record]:
        if not self._wish.usage:
            return []
        return [{**self._record([], self._kind_of_chunks), "usage": usage(list(choices), self._wish)}]

    def _chunk(self, choice: Choice, inner: Record, *, reason: str | None = None) -> Record:
        one = {"index": choice.index, **inner, "finish_reason": reason}
        return self._record([one], self._kind_of_chunks)

    def _whole(self, choices: Sequence[Choice], told: list[Record]) -> Record:
        record = self._record(told, self._kind)
        if len(told) > 1:
            told = [{**one, "seed": choice.seed} for one, choice in zip(told, choices, strict=True)]
            record["choices"] = told
        return {**record, "usage": usage(list(choices), self._wish), **numbers(choices[0])}


class ChatForm(_OpenAi):
    """``/v1/chat/completions``."""

    def __init__(self, wish: Wish) -> None:
        super().__init__(wish, "chatcmpl", "chat.completion", "chat.completion.chunk")

    def opening(self, choices: Sequence[Choice]) -> list[Record]:
        delta = {"delta": {"role": "assistant", "content": ""}, "logprobs": None}
        return [self._chunk(choice, delta) for choice in choices]

    def delta(self, choice: Choice, delta: Delta) -> list[Record]:
        inner: Record = {}
        if delta.thinking:
            inner["reasoning_content"] = delta.thinking
        if delta.text:
            inner["content"] = delta.text
        if delta.calls:
            inner["tool_calls"] = [{"index": at, **_call(call)} for at, call in enumerate(delta.calls)]
        wants_tokens = self._wish.rivals is not None and delta.tokens
        if not (inner or wants_tokens or (delta.progress is not None and self._wish.progress)):
            return []
        logprobs = chat_logprobs(delta.tokens) if wants_tokens else None
        record = self._chunk(choice, {"delta": inner, "logprobs": logprobs})
        if self._wish.live:
            record["timings"] = choice.timings()
        if delta.progress is not None and self._wish.progress:
            record["prompt_progress"] = progress(choice, delta.progress)
        return [record]

    def end(self, choice: Choice) -> list[Record]:
        chunk = self._chunk(choice, {"delta": {}, "logprobs": None}, reason=choice.reason)
        return [{**chunk, **numbers(choice)}]

    def whole(self, choices: Sequence[Choice]) -> Record:
        return self._whole(choices, [self._choice(one) for one in choices])

    def _choice(self, choice: Choice) -> Record:
        message: Record = {"role": "assistant", "content": choice.text}
        if choice.thinking:
            message["reasoning_content"] = choice.thinking
        if choice.calls:
            message["content"] = choice.text or None
            message["tool_calls"] = [_call(call) for call in choice.calls]
        logprobs = chat_logprobs(choice.tokens) if self._wish.rivals is not None else None
        return {"index": choice.index, "message": message, "logprobs": logprobs, "finish_reason": choice.reason}


class TextForm(_OpenAi):
    """``/v1/completions``."""

    def __init__(self, wish: Wish) -> None:
        super().__init__(wish, "cmpl", "text_completion", "text_completion")
        self._offsets: dict[int, int] = {}

    def opening(self, choices: Sequence[Choice]) -> list[Record]:
        return []

    def delta(self, choice: Choice, delta: Delta) -> list[Record]:
        if not (delta.text or (self._wish.rivals is not None and delta.tokens)):
            return []
        record = self._chunk(choice, {"text": delta.text, "logprobs": self._logprobs(choice, delta.tokens)})
        if self._wish.live:
            record["timings"] = choice.timings()
        return [record]

    def end(self, choice: Choice) -> list[Record]:
        chunk = self._chunk(choice, {"text": "", "logprobs": None}, reason=choice.reason)
        return [{**chunk, **numbers(choice)}]

    def whole(self, choices: Sequence[Choice]) -> Record:
        told = [
            {
                "index": one.index,
                "text": one.text,
                "logprobs": self._logprobs(one, one.tokens),
                "finish_reason": one.reason,
            }
            for one in choices
        ]
        return self._whole(choices, told)

    def _logprobs(self, choice: Choice, tokens: Sequence[TokenInfo]) -> Record | None:
        if self._wish.rivals is None:
            return None
        start = self._offsets.get(choice.index, 0)
        self._offsets[choice.index] = start + sum(len(spelt(token.piece)) for token in tokens)
        return text_logprobs(tokens, start)


class NativeForm:
    """llama.cpp's ``/completion``."""

    named, last = False, ""

    def __init__(self, wish: Wish) -> None:
        self._wish = wish

    def opening(self, choices: Sequence[Choice]) -> list[Record]:
        return []

    def delta(self, choice: Choice, delta: Delta) -> list[Record]:
        if not (delta.text or delta.tokens):
            return []
        record: Record = {
            "index": choice.index,
            "content": delta.text,
            "tokens": [token.id for token in delta.tokens],
            "stop": False,
            "tokens_predicted": choice.completion_n,
            "tokens_evaluated": choice.prompt_n,
        }
        if self._wish.rivals is not None:
            record["completion_probabilities"] = [probability(token) for token in delta.tokens]
        if self._wish.live:
            record["timings"] = choice.timings()
        return [record]

    def end(self, choice: Choice) -> list[Record]:
        return [{**self._last(choice), "content": "", "tokens": []}]

    def closing(self, choices: Sequence[Choice]) -> list[Record]:
        return []

    def whole(self, choices: Sequence[Choice]) -> Any:
        told = [self._choice(one) for one in choices]
        return told[0] if len(told) == 1 else told

    def _choice(self, choice: Choice) -> Record:
        record = self._last(choice)
        if self._wish.ids:
            record["tokens"] = [token.id for token in choice.tokens]
        if self._wish.rivals is not None:
            record["completion_probabilities"] = [probability(token) for token in choice.tokens]
        return record

    def _last(self, choice: Choice) -> Record:
        finished = choice.finished
        assert finished is not None
        stopped = finished.stop if finished.stop in choice.request.stop else None
        kind = "limit" if finished.reason != "stop" else "eos" if stopped is None else "word"
        return {
            "index": choice.index,
            "content": choice.text,
            "tokens": [],
            "stop": True,
            "model": self._wish.model,
            "tokens_predicted": choice.completion_n,
            "tokens_evaluated": choice.prompt_n,
            "tokens_cached": choice.prompt_n + choice.completion_n,
            "prompt": self._wish.texts[choice.index // self._wish.each],
            "generation_settings": settings(choice),
            "has_new_line": "\n" in choice.text,
            "truncated": False,
            "stop_type": kind,
            "stopping_word": stopped or "",
            "timings": choice.timings(),
            "speculation": choice.speculation(),
        }


def numbers(choice: Choice) -> Record:
    """Clock and guesses of one answer, and the seed that gives it again."""
    return {"timings": choice.timings(), "speculation": choice.speculation(), "seed": choice.seed}


def settings(choice: Choice) -> Record:
    """llama.cpp's ``generation_settings``."""
    request = choice.request
    limits = {"max_tokens": request.max_tokens, "n_predict": request.max_tokens, "stop": list(request.stop)}
    return {**drawn(request.sampling), **limits, "seed": choice.seed}


def progress(choice: Choice, done: int) -> Record:
    """llama.cpp's ``prompt_progress``."""
    return {"total": choice.prompt_n, "cache": choice.cache_n, "processed": done}


def call_id() -> str:
    return f"call_{secrets.token_hex(12)}"


def _call(call: Call) -> Record:
    return {"id": call_id(), "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def probability(token: TokenInfo) -> Record:
    """An entry of llama.cpp's ``completion_probabilities``."""
    return {"id": token.id, **entry(token), "top_logprobs": [{"id": one.id, **entry(one)} for one in token.top]}
