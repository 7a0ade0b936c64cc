"""Functions that a model may call: how it is told of them, and how it is made to."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from localspec.server.errors import invalid
from localspec.server.fields import Fields
from localspec.server.sampling import schema_to_grammar
from localspec.types import Message

_HOW = (
    "You may call these functions. To call one, write only this, with the arguments as a JSON object:\n"
    '<tool_call>\n{"name": "function name", "arguments": {}}\n</tool_call>\n\nFunctions:\n'
)


@dataclass(frozen=True, slots=True)
class Tools:
    """``declared`` are OpenAI's objects. ``choice`` is ``auto``, ``none``, ``required``, or the name of a function."""

    declared: tuple[dict[str, Any], ...]
    choice: str

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(one["function"]["name"] for one in self.declared)

    @property
    def offered(self) -> bool:
        """Whether the model may call any."""
        return bool(self.declared) and self.choice != "none"

    @property
    def forced(self) -> bool:
        """Whether it must."""
        return self.offered and self.choice != "auto"

    def grammar(self) -> str:
        """One call, as an object with the function's name and its arguments."""
        ways = [self._schema(one["function"]) for one in self.declared if self.choice in ("required", _name(one))]
        return schema_to_grammar(ways[0] if len(ways) == 1 else {"anyOf": ways}, "tools")

    def _schema(self, function: dict[str, Any]) -> dict[str, Any]:
        arguments = function.get("parameters") or {"type": "object"}
        definitions = {name: arguments[name] for name in ("$defs", "definitions") if name in arguments}
        properties = {"name": {"const": function["name"]}, "arguments": arguments}
        return {"type": "object", "properties": properties, "required": ["name", "arguments"], **definitions}

    def in_words(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        """The messages with the functions described in the first, for a template that knows no tools."""
        told = _HOW + "\n".join(json.dumps(one["function"], ensure_ascii=False) for one in self.declared)
        first, *rest = messages
        if first.role == "system":
            return (replace(first, content=f"{first.content}\n\n{told}"), *rest)
        return (Message("system", told), *messages)


NO_TOOLS = Tools((), "none")


def _name(one: dict[str, Any]) -> str:
    name: str = one["function"]["name"]
    return name


def tools(fields: Fields) -> Tools:
    """``tools`` and ``tool_choice``, in either of OpenAI's forms (that of responses has no inner object).

    Raises:
        ApiError: one that is no function, or a choice of one that is not there.
    """
    for name in ("functions", "function_call"):
        if fields.has(name):
            raise fields.refused(name, "is out of use: give tools and tool_choice")
    declared = tuple(_declared(one) for one in fields.parts("tools"))
    found = Tools(declared, _choice(fields))
    if found.choice not in ("auto", "none") and not declared:
        raise invalid("tool_choice is given without tools", "tool_choice")
    if found.forced and found.choice not in ("required", *found.names):
        raise invalid(f"tool_choice names {found.choice!r}, which is not among tools", "tool_choice")
    return found


def _declared(one: Fields) -> dict[str, Any]:
    kind = one.text("type") or "function"
    if kind != "function":
        raise one.refused("type", f"is {kind!r}: this server knows functions alone")
    function = one.part("function") or one
    name = function.needed_text("name")
    if not name:
        raise invalid(f"{function.name('name')} is empty", function.name("name"))
    declared: dict[str, Any] = {"name": name, "description": function.text("description") or ""}
    parameters = function.part("parameters")
    declared["parameters"] = {"type": "object", "properties": {}} if parameters is None else dict(parameters.found)
    return {"type": "function", "function": declared}


def _choice(fields: Fields) -> str:
    value = fields.get("tool_choice")
    if not isinstance(value, dict):
        return fields.choice("tool_choice", ("auto", "none", "required")) or "auto"
    wish = fields.part("tool_choice")
    assert wish is not None
    return (wish.part("function") or wish).needed_text("name")
