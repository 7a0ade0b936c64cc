"""``/v1/responses``: OpenAI's newer form of a chat, as far as it needs no memory."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any

from localspec.server.choice import Choice, Delta, usage
from localspec.server.forms import Record, call_id, numbers
from localspec.server.wishes import Wish


class ResponsesForm:
    """A response is a list of items: thinking, a message, calls. Its stream tells when each begins, grows and ends."""

    named, last = True, ""

    def __init__(self, wish: Wish) -> None:
        self._wish = wish
        self._id = f"resp_{secrets.token_hex(12)}"
        self._message = f"msg_{secrets.token_hex(12)}"
        self._created = int(time.time())
        self._number = 0
        self._opened = False
        self._calls: list[Record] = []

    def opening(self, choices: Sequence[Choice]) -> list[Record]:
        response = self._response(choices[0], "in_progress", [])
        return [self._event(f"response.{name}", response=response) for name in ("created", "in_progress")]

    def delta(self, choice: Choice, delta: Delta) -> list[Record]:
        records: list[Record] = []
        if delta.text:
            records += self._open()
            place = {"item_id": self._message, "output_index": 0, "content_index": 0}
            records.append(self._event("response.output_text.delta", **place, delta=delta.text, logprobs=[]))
        return records

    def _open(self) -> list[Record]:
        if self._opened:
            return []
        self._opened = True
        item, part = self._item("", "in_progress"), _part("")
        return [
            self._event("response.output_item.added", output_index=0, item={**item, "content": []}),
            self._event(
                "response.content_part.added", item_id=self._message, output_index=0, content_index=0, part=part
            ),
        ]

    def end(self, choice: Choice) -> list[Record]:
        records: list[Record] = []
        if self._opened:
            place = {"item_id": self._message, "output_index": 0, "content_index": 0}
            text, item = choice.text, self._item(choice.text, _status(choice))
            records += [
                self._event("response.output_text.done", **place, text=text, logprobs=[]),
                self._event("response.content_part.done", **place, part=_part(text)),
                self._event("response.output_item.done", output_index=0, item=item),
            ]
        output = self._output(choice)
        for at, item in enumerate(output):
            if item["type"] == "function_call":
                place = {"item_id": item["id"], "output_index": at}
                opened = {**item, "arguments": "", "status": "in_progress"}
                records += [
                    self._event("response.output_item.added", output_index=at, item=opened),
                    self._event("response.function_call_arguments.done", **place, arguments=item["arguments"]),
                    self._event("response.output_item.done", output_index=at, item=item),
                ]
        name, response = self._closed(choice, output)
        return [*records, self._event(f"response.{name}", response=response)]

    def closing(self, choices: Sequence[Choice]) -> list[Record]:
        return []

    def whole(self, choices: Sequence[Choice]) -> Record:
        return self._closed(choices[0], self._output(choices[0]))[1]

    def _closed(self, choice: Choice, output: list[Record]) -> tuple[str, Record]:
        status = _status(choice)
        response = self._response(choice, status, output)
        counts = usage([choice], self._wish)
        response["usage"] = {
            "input_tokens": counts["prompt_tokens"],
            "input_tokens_details": counts["prompt_tokens_details"],
            "output_tokens": counts["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": counts["total_tokens"],
        }
        if status == "incomplete":
            response["incomplete_details"] = {"reason": "max_output_tokens"}
        return status, {**response, **numbers(choice)}

    def _output(self, choice: Choice) -> list[Record]:
        said = [self._item(choice.text, _status(choice))] if choice.text or not choice.calls else []
        if not self._calls:
            self._calls = [
                {
                    "id": f"fc_{secrets.token_hex(12)}",
                    "type": "function_call",
                    "status": "completed",
                    "call_id": call_id(),
                    "name": call.name,
                    "arguments": call.arguments,
                }
                for call in choice.calls
            ]
        return said + self._calls

    def _item(self, text: str, status: str) -> Record:
        parts = [_part(text)]
        return {"id": self._message, "type": "message", "role": "assistant", "status": status, "content": parts}

    def _response(self, choice: Choice, status: str, output: list[Record]) -> Record:
        request, tools = choice.request, self._wish.tools
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": self._wish.echo["instructions"],
            "max_output_tokens": request.max_tokens if request.max_tokens >= 0 else None,
            "model": self._wish.model,
            "output": output,
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "store": False,
            "temperature": request.sampling.temperature,
            "tool_choice": _tool_choice(tools.choice),
            "tools": [
                {"type": "function", "strict": strict, **one["function"]}
                for one, strict in zip(tools.declared, self._wish.echo["strict"], strict=True)
            ],
            "top_p": request.sampling.top_p,
            "usage": None,
            "metadata": self._wish.echo["metadata"],
        }

    def _event(self, kind: str, **fields: Any) -> Record:
        self._number += 1
        return {"type": kind, "sequence_number": self._number - 1, **fields}


def _status(choice: Choice) -> str:
    return "incomplete" if choice.reason == "length" else "completed"


def _part(text: str) -> Record:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _tool_choice(choice: str) -> Any:
    return choice if choice in ("auto", "none", "required") else {"type": "function", "name": choice}
