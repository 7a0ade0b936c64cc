"""Messages as clients send them, as those that a chat template takes."""

from __future__ import annotations

import json
from typing import Any

from localspec.server.errors import invalid
from localspec.server.fields import Fields
from localspec.types import ROLES, Message

_PASSED_ON = ("name", "tool_call_id", "reasoning_content")


def messages(fields: Fields, *, template_has_tools: bool) -> tuple[Message, ...]:
    """The field ``messages``.

    Args:
        template_has_tools: the template knows of tools; for one that does not, calls and their results are told in
            words.

    Raises:
        ApiError: there is none, one of another form, or one with what is no text.
    """
    if not fields.has("messages"):
        raise invalid("messages is missing", "messages")
    found = tuple(_message(one) for one in fields.parts("messages"))
    if not found:
        raise invalid("messages is empty", "messages")
    return found if template_has_tools else tuple(map(in_words, found))


def _message(fields: Fields) -> Message:
    role = fields.choice("role", tuple(ROLES))
    if role is None:
        raise invalid(f"{fields.name('role')} is missing", fields.name("role"))
    calls = [_call(one) for one in fields.parts("tool_calls")]
    more = {name: text for name in _PASSED_ON if (text := fields.text(name)) is not None}
    if not (calls or fields.has("content")):
        if role != "assistant":
            raise invalid(f"{fields.name('content')} is missing", fields.name("content"))
        raise invalid(f"{fields.place} has neither content nor tool_calls", fields.place)
    return Message(ROLES[role], content(fields), (*more.items(), *([("tool_calls", calls)] if calls else ())))


def content(fields: Fields) -> str:
    """A text, or a list of parts that are texts."""
    value = fields.get("content")
    if value is None or isinstance(value, str):
        return value or ""
    if not isinstance(value, list):
        raise fields.wrong("content", "a text or a list of parts")
    return "\n".join(_part(part) for part in fields.parts("content"))


def _part(part: Fields) -> str:
    kind = part.text("type") or "text"
    if kind not in ("text", "input_text", "output_text", "refusal"):
        raise part.refused("type", f"is {kind!r}: this server takes text alone")
    return part.needed_text("refusal" if kind == "refusal" else "text")


def _call(fields: Fields) -> dict[str, Any]:
    function = fields.part("function")
    if function is None:
        raise invalid(f"{fields.name('function')} is missing", fields.name("function"))
    call = {"name": function.needed_text("name"), "arguments": _arguments(function)}
    return {"id": fields.text("id") or "", "type": "function", "function": call}


def _arguments(function: Fields) -> Any:
    """As an object, which is what templates expect, where it is one."""
    value = function.get("arguments")
    if isinstance(value, dict):
        return value
    text = function.text("arguments") or ""
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return text
    return found if isinstance(found, dict) else text


def in_words(message: Message) -> Message:
    """The same for a template that knows no tools."""
    more = dict(message.more)
    if message.role == "tool":
        name = more.get("name") or more.get("tool_call_id") or "the tool"
        return Message("user", f"Result of {name}:\n{message.content}")
    calls = more.get("tool_calls")
    if not isinstance(calls, list):
        return Message(message.role, message.content)
    told = [f"<tool_call>\n{json.dumps(call['function'], ensure_ascii=False)}\n</tool_call>" for call in calls]
    return Message(message.role, "\n".join([*([message.content] if message.content else []), *told]))
