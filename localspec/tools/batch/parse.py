"""From a line of the input to what it asks for, or to why it cannot be answered."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from localspec.chat import Reasoning, reasoning_of
from localspec.errors import LocalspecError, UsageError
from localspec.options import Option, Values, request, template_kwargs
from localspec.tools.batch.form import CHAT, COMPLETIONS, Form, Name, OpenAI, Plain
from localspec.tools.batch.settings import Overrides
from localspec.tools.batch.source import LONGEST, Line
from localspec.types import ROLES, GenerationRequest, Message

#: Of OpenAI's fields those that change nothing here, and the values that do not.
_IDLE = ("model", "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key")
_IDLE_VALUES = {"n": 1, "best_of": 1, "stream": False, "echo": False, "suffix": "", "parallel_tool_calls": True}
_LIKELIEST = 20


@dataclass(frozen=True, slots=True)
class Task:
    """A line that can be answered. ``reasoning`` tells thinking from answer; ``None``: nothing of it is thinking."""

    form: Form
    request: GenerationRequest
    reasoning: Reasoning | None = None
    hides_thinking: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """A line that cannot, and why."""

    form: Form
    error: LocalspecError


def line_seed(base: int, line: int) -> int:
    """The seed of a line that names none: the first four bytes of the BLAKE2b hash of ``base:line``, in decimal. So
    lines with the same prompt differ, and a line has the same seed whatever else is in its file."""
    return int.from_bytes(hashlib.blake2b(f"{base}:{line}".encode(), digest_size=4).digest(), "big")


class Parser:
    """Reads lines for one engine.

    Args:
        options: of the command, with their ``values``.
        seed: what the seeds of lines are made from.
        template: the model's chat template; ``None``: it has none, or is not known yet.
        trace: answers are to tell of every step.
    """

    def __init__(
        self, options: Iterable[Option], values: Values, *, seed: int, template: str | None, trace: bool = False
    ) -> None:
        self._overrides = Overrides(options, values)
        self._seed = seed
        self._template = template
        self._trace = trace
        self._openai = False  # what the last line was that could be read
        self._known: dict[str, Reasoning] = {}

    def read(self, lines: Iterable[Line]) -> Iterator[Task | Refused]:
        return map(self.task, lines)

    def task(self, line: Line) -> Task | Refused:
        form: Form = OpenAI(line.number) if self._openai else Plain(line.number)
        try:
            item = _object(line)
            self._openai = "custom_id" in item or "body" in item
            form = _openai(item, line.number) if self._openai else _plain(item, line.number)
            return self._task(form, _body(item) if self._openai else _fields(item))
        except LocalspecError as error:
            return Refused(form, error)

    def _task(self, form: Form, fields: dict[str, Any]) -> Task:
        prompt, messages = fields.pop("prompt", None), fields.pop("messages", None)
        if (prompt is None) == (messages is None):
            raise UsageError("a line needs either prompt or messages", hint='Such as {"prompt": "Once upon a time"}.')
        logprobs = _logprobs(fields)
        values = self._overrides.over(fields, form.line)
        asked = replace(_request(values, prompt, messages), logprobs=logprobs, trace=self._trace)
        if asked.sampling.seed is None or fields.get("seed") is None:
            seed = line_seed(self._seed, form.line)
            asked = replace(asked, sampling=replace(asked.sampling, seed=seed))
        if asked.messages is None:
            return Task(form, asked)
        reasoning = self._reasoning(values, bound=asked.sampling.grammar is not None)
        asked = replace(asked, template_kwargs=tuple(reasoning.variables.items()))
        return Task(form, asked, reasoning, hides_thinking=values["reasoning"] == "off")

    def _reasoning(self, values: Values, *, bound: bool) -> Reasoning:
        """Asked of the template once for each way to ask."""
        given = dict(template_kwargs(values))
        key = json.dumps([values["reasoning"], given, bound], sort_keys=True, default=str)
        if key not in self._known:
            self._known[key] = reasoning_of(self._template, values["reasoning"], given, bound=bound)
        return self._known[key]


def _object(line: Line) -> dict[str, Any]:
    if line.data is None:
        raise UsageError(f"the line is longer than {LONGEST} bytes", hint="Split it, or check its line ends.")
    try:
        text = line.data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"the line is not UTF-8 text (byte {error.start})", hint="Convert it first.") from None
    try:
        item = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the line is no JSON: {error}", hint="Write one object a line.") from None
    if not isinstance(item, dict):
        raise UsageError("the line is no JSON object", hint='Write objects such as {"prompt": "Say hello."}.')
    return item


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")


def _plain(item: dict[str, Any], line: int) -> Form:
    return Plain(line, _name(item.get("id")), item.get("metadata"))


def _openai(item: dict[str, Any], line: int) -> Form:
    url = item.get("url", CHAT)
    return OpenAI(line, _name(item.get("custom_id")), url if url in (CHAT, COMPLETIONS) else None)


def _name(given: Any) -> Name:
    return given if _is_name(given) else None


def _is_name(given: Any) -> bool:
    return given is None or (isinstance(given, str | int) and not isinstance(given, bool))


def _fields(item: dict[str, Any]) -> dict[str, Any]:
    """Everything of a line in our own form that is about its answer."""
    _check_name("id", item.get("id"))
    return {key: value for key, value in item.items() if key not in ("id", "metadata")}


def _body(item: dict[str, Any]) -> dict[str, Any]:
    """The same of one in OpenAI's form."""
    _check_name("custom_id", item.get("custom_id"))
    url, body = item.get("url", CHAT), item.get("body")
    if url not in (CHAT, COMPLETIONS):
        raise UsageError(f"url {url!r} is not served", hint=f"Use {CHAT} or {COMPLETIONS}.")
    if item.get("method", "POST") != "POST":
        raise UsageError(f"method {item['method']!r} is not served", hint="Use POST.")
    if not isinstance(body, dict):
        raise UsageError("the line has no body", hint="It is an object with the fields of a request.")
    fields = {key: value for key, value in body.items() if key not in _IDLE and value is not None}
    for key, idle in _IDLE_VALUES.items():
        if fields.pop(key, idle) != idle:
            raise UsageError(f"{key} is not offered", hint=f"Leave {key} out.")
    other = "prompt" if url == CHAT else "messages"
    if other in fields:
        raise UsageError(f"{url} takes no {other}", hint=f"Use {COMPLETIONS if url == CHAT else CHAT}.")
    return fields


def _check_name(key: str, given: Any) -> None:
    if not _is_name(given):
        raise UsageError(f"{key} is neither a text nor an integer", hint="Use a text.")


def _request(values: Values, prompt: Any, messages: Any) -> GenerationRequest:
    system = values["system"]
    if messages is None and not isinstance(prompt, list) and (values["conversation"] or system is not None):
        messages = [{"role": "user", "content": prompt}]
    if messages is not None:
        return request(values, messages=_messages(messages, system))
    if isinstance(prompt, list):
        return replace(request(values, prompt=""), prompt=None, tokens=_tokens(prompt))
    return request(values, prompt=_text(prompt, "prompt"))


def _logprobs(fields: dict[str, Any]) -> int | None:
    """How many likeliest tokens are asked for: ``logprobs: 5``, or of a chat at OpenAI ``logprobs: true`` and
    ``top_logprobs: 5``."""
    given, top = fields.pop("logprobs", None), fields.pop("top_logprobs", None)
    if given is True:
        given = 0 if top is None else top
    elif given is False:
        given = None
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= _LIKELIEST:
        raise UsageError(f"logprobs {given!r} is no number from 0 to {_LIKELIEST}", hint="Use 5, or leave it out.")
    return given


def _tokens(prompt: list[Any]) -> tuple[int, ...]:
    """A prompt that is given in tokens."""
    if not all(isinstance(token, int) and not isinstance(token, bool) for token in prompt):
        raise UsageError("prompt is a list, but not of token ids", hint="Write a line for each prompt.")
    return tuple(prompt)


def _messages(given: Any, system: str | None) -> tuple[Message, ...]:
    """``system`` stands before them unless they begin with one of their own."""
    if not isinstance(given, list) or not given:
        raise UsageError("messages is no list of messages", hint='Such as [{"role": "user", "content": "Hi"}].')
    turns = tuple(_message(one) for one in given)
    if system is not None and turns[0].role != "system":
        turns = (Message("system", system), *turns)
    return turns


def _message(given: Any) -> Message:
    if not isinstance(given, Mapping):
        raise UsageError("a message is no object", hint='Such as {"role": "user", "content": "Hi"}.')
    unknown = next((key for key in given if key not in ("role", "content", "name") and given[key] is not None), None)
    if unknown is not None:
        raise UsageError(f"a message has {unknown!r}, which is not offered", hint="Use role and content.")
    role = given.get("role")
    if not isinstance(role, str) or not role:
        raise UsageError("a message has no role", hint="It is system, user or assistant.")
    if role not in ROLES:
        raise UsageError(f"a message has the role {role!r}", hint=f"There are {', '.join(ROLES)}.")
    return Message(ROLES[role], _content(given.get("content")))


def _content(given: Any) -> str:
    """A text, or OpenAI's list of parts that are texts."""
    if isinstance(given, list):
        texts = [part for part in given if isinstance(part, Mapping) and part.get("type") == "text"]
        if len(texts) < len(given):
            raise UsageError("a message has a part that is no text", hint="Only text is offered.")
        return "\n".join(_text(part.get("text"), "a part of a message") for part in texts)
    return _text(given, "a message's content")


def _text(given: Any, what: str) -> str:
    if not isinstance(given, str):
        raise UsageError(f"{what} is no text", hint="Give a text.")
    try:
        given.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{what} holds half a character", hint="Escapes of JSON come in pairs there.") from None
    return given
