"""Calls of functions in what a model says. Families write them in their own ways; some mark them with control tokens,
which are no part of the text, so that the bare form is left.

| form | used by |
| --- | --- |
| ``<tool_call>{"name": …, "arguments": {…}}</tool_call>`` | Hermes, Qwen, SmolLM, and models that are told in words |
| ``{"name": …, "parameters": {…}}``, also in a list | Llama 3, Mistral, and every call that a grammar forced |
| ``name{…}``, ``<function=name>{…}</function>`` | newer Mistral, Functionary |
| ``<function=name><parameter=key>value</parameter></function>`` | Qwen 3 Coder |
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

_OPENERS = ("<tool_call>", "<function=", "[TOOL_CALLS]", "<|python_tag|>")
_TAGGED = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|\Z)", re.DOTALL)
_FUNCTION = re.compile(r"<function=([^>\s]+)>\s*(.*?)\s*(?:</function>|\Z)", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^>\s]+)>\n?(.*?)\n?(?:</parameter>|\Z)", re.DOTALL)
_MARKS = re.compile(r"^(?:\[TOOL_CALLS\]|<\|python_tag\|>)\s*")


@dataclass(frozen=True, slots=True)
class Call:
    """``arguments`` are a JSON object, as text."""

    name: str
    arguments: str


class CallReader:
    """Lets text through as long as it can be none of a call, and finds the calls in the rest when all is there.

    Args:
        names: of the functions that may be called; what calls another one is text.
    """

    def __init__(self, names: Collection[str]) -> None:
        self._names = frozenset(names)
        self._held = ""
        self._said = False  # some text went out: a bare call can no longer begin

    def push(self, text: str) -> str:
        """The text that may go out."""
        self._held += text
        end = self._safe()
        out, self._held = self._held[:end], self._held[end:]
        self._said = self._said or bool(out.strip())
        return out

    def finish(self) -> tuple[str, tuple[Call, ...]]:
        """Text that was none of a call after all, and the calls."""
        held, self._held = self._held, ""
        calls = tuple(_calls(held, self._names))
        if not calls:
            return held, ()
        return _before(held), calls

    def _safe(self) -> int:
        held = self._held
        if not self._said and self._may_be_bare(held.lstrip()):
            return 0
        openers = [at for mark in _OPENERS if (at := held.find(mark)) >= 0]
        if openers:
            return min(openers)
        return min(_beginning(held, mark) for mark in _OPENERS)

    def _may_be_bare(self, text: str) -> bool:
        """Whether an answer that begins so may be a call as a whole."""
        if not text or text[0] in "{[":
            return True
        return any(name.startswith(text) or text.startswith(f"{name}{{") or text == name for name in self._names)


def _beginning(text: str, mark: str) -> int:
    """Where the end of ``text`` may begin ``mark``."""
    longest = min(len(mark) - 1, len(text))
    return next((len(text) - n for n in range(longest, 0, -1) if mark.startswith(text[-n:])), len(text))


def _before(text: str) -> str:
    """What stands before the first mark of a call."""
    at = min((at for mark in _OPENERS if (at := text.find(mark)) >= 0), default=0)
    return text[:at].rstrip()


def _calls(text: str, names: frozenset[str]) -> Iterator[Call]:
    if tagged := _TAGGED.findall(text):
        for inner in tagged:
            yield from _functions(inner, names) if "<function=" in inner else _bare(inner, names)
    elif "<function=" in text:
        yield from _functions(text, names)
    else:
        yield from _bare(_MARKS.sub("", text.strip()), names)


def _functions(text: str, names: frozenset[str]) -> Iterator[Call]:
    for name, inner in _FUNCTION.findall(text):
        if name not in names:
            continue
        if parameters := _PARAMETER.findall(inner):
            yield Call(name, _dumped({key: _value(value) for key, value in parameters}))
        elif (arguments := _object(inner or "{}")) is not None:
            yield Call(name, _dumped(arguments))


def _value(text: str) -> Any:
    """Values are JSON where they can be, else text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _bare(text: str, names: frozenset[str]) -> Iterator[Call]:
    """Objects in a row or in a list, or a name with an object behind it."""
    for name in names:
        if text.startswith(f"{name}{{") and (arguments := _object(text[len(name) :])) is not None:
            yield Call(name, _dumped(arguments))
            return
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        try:
            found, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return
        for one in found if isinstance(found, list) else [found]:
            if (call := _call(one, names)) is not None:
                yield call
        at += len(text[at:]) - len(text[at:].lstrip(" \r\n\t;,"))


def _call(found: Any, names: frozenset[str]) -> Call | None:
    if isinstance(found, dict) and isinstance(found.get("function"), dict):
        found = found["function"]
    if not isinstance(found, dict) or found.get("name") not in names:
        return None
    arguments = found.get("arguments", found.get("parameters", {}))
    if isinstance(arguments, str):
        arguments = _object(arguments)
    return Call(found["name"], _dumped(arguments)) if isinstance(arguments, dict) else None


def _object(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _dumped(arguments: Any) -> str:
    return json.dumps(arguments, ensure_ascii=False)
