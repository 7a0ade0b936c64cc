"""In which form a line is answered: our own, or that of OpenAI's batch files."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from localspec.errors import ExitCode
from localspec.openai_records import chat_logprobs, text_logprobs
from localspec.report import answer_record, speculation_record, timings_record
from localspec.types import EngineInfo, Failed, Finished, TokenInfo

Record = dict[str, Any]
#: What a line calls itself.
Name = str | int | None
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
_NUMBERED = "batch_req_"


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer. ``thinking`` is what stood in thinking tags; ``steps`` are records of all verify steps, where they
    were asked for."""

    finished: Finished
    text: str
    thinking: str
    tokens: tuple[TokenInfo, ...]
    seed: int
    steps: tuple[Record, ...] | None = None


class Form(Protocol):
    """Makes the output line for one input line, whose number is ``line``."""

    @property
    def line(self) -> int: ...

    @property
    def name(self) -> Name: ...

    def answered(self, answer: Answered, info: EngineInfo, *, logprobs: bool) -> Record: ...

    def failed(self, problem: Failed) -> Record: ...


@dataclass(frozen=True, slots=True)
class Plain:
    """``metadata`` comes back as it was given."""

    line: int
    name: Name = None
    metadata: Any = None

    def answered(self, answer: Answered, info: EngineInfo, *, logprobs: bool) -> Record:
        record = answer_record(
            answer.finished, answer.text, answer.tokens, info=info, seed=answer.seed, logprobs=logprobs
        )
        if answer.thinking:
            record["thinking"] = answer.thinking
        record["speculation"] = _speculation(answer)
        return {**self._head, **record}

    def failed(self, problem: Failed) -> Record:
        about = {"message": problem.message, "hint": problem.hint, "type": problem.kind}
        return {**self._head, "error": {**about, "code": int(problem.exit_code)}}

    @property
    def _head(self) -> Record:
        kept = {} if self.metadata is None else {"metadata": self.metadata}
        return {"line": self.line, "id": self.name, **kept}


@dataclass(frozen=True, slots=True)
class OpenAI:
    """``url`` is the endpoint that the line is for; ``None``: none that is known, so that there is no response."""

    line: int
    name: Name = None
    url: str | None = None

    def answered(self, answer: Answered, info: EngineInfo, *, logprobs: bool) -> Record:
        chat, finished = self.url == CHAT, answer.finished
        choice = {
            "index": 0,
            **({"message": _message(answer)} if chat else {"text": answer.text}),
            "logprobs": (chat_logprobs if chat else text_logprobs)(answer.tokens) if logprobs else None,
            "finish_reason": finished.reason,
        }
        prompt_n, n = finished.timings.prompt_n, finished.n
        body = {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{self.line}",
            "object": "chat.completion" if chat else "text_completion",
            "created": int(time.time()),
            "model": Path(info.target).name,
            "choices": [choice],
            "usage": {
                "prompt_tokens": prompt_n,
                "completion_tokens": n,
                "total_tokens": prompt_n + n,
                "prompt_tokens_details": {"cached_tokens": finished.timings.cache_n},
            },
            "seed": answer.seed,
            "timings": timings_record(finished.timings, finished.stats),
            "speculation": _speculation(answer),
        }
        return self._response(200, body)

    def failed(self, problem: Failed) -> Record:
        if self.url is None:
            return {**self._head, "response": None, "error": {"code": "invalid_line", "message": _told(problem)}}
        ours = problem.exit_code in (ExitCode.USAGE, ExitCode.MODEL)
        kind = "invalid_request_error" if ours else "server_error"
        about = {"message": _told(problem), "type": kind, "param": None, "code": None}
        return self._response(400 if ours else 500, {"error": about})

    def _response(self, status: int, body: Record) -> Record:
        response = {"status_code": status, "request_id": f"req_{self.line}", "body": body}
        return {**self._head, "response": response, "error": None}

    @property
    def _head(self) -> Record:
        return {"id": f"{_NUMBERED}{self.line}", "custom_id": self.name}


def answered_line(record: Any) -> tuple[int, Name, bool] | None:
    """Which input line an output line belongs to, what that calls itself, and whether it failed; ``None``: it is no
    line of a batch."""
    if not isinstance(record, Mapping):
        return None
    if "custom_id" in record:
        head, response = record.get("id"), record.get("response")
        number = head.removeprefix(_NUMBERED) if isinstance(head, str) else ""
        if not number.isdecimal():
            return None
        good = isinstance(response, Mapping) and response.get("status_code") == 200
        return int(number), record["custom_id"], not good
    line = record.get("line")
    return (line, record.get("id"), "error" in record) if isinstance(line, int) else None


def _speculation(answer: Answered) -> Record:
    record = speculation_record(answer.finished.stats)
    return record if answer.steps is None else {**record, "per_step": list(answer.steps)}


def _message(answer: Answered) -> Record:
    thought = {"reasoning_content": answer.thinking} if answer.thinking else {}
    return {"role": "assistant", "content": answer.text, **thought}


def _told(problem: Failed) -> str:
    return f"{problem.message}. {problem.hint}" if problem.hint else problem.message
