"""Thinking, as far as the template decides it: whether a model is asked to, and how its answers begin.

``auto`` leaves the choice to the template. ``on`` and ``off`` set the variables by which templates turn thinking on and
off. Where there are none, thinking comes all the same and only its text can be hidden.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from localspec.chat.template import ChatTemplate
from localspec.errors import ModelError
from localspec.text.thinking import KNOWN_TAGS, Tags, ThinkingSplitter, named_tags, opened_by
from localspec.types import Message

Mode = Literal["auto", "on", "off"]

#: Variables that templates look at, and their values for ``on`` and ``off``; no value: left to the template.
_SWITCHES: dict[str, tuple[object, object]] = {
    "enable_thinking": (True, False),
    "thinking": (True, False),
    "thinking_budget": (None, 0),
}
_UNKNOWN = "the chat template is not known: thinking comes as the model likes, and can only be hidden"


@dataclass(frozen=True)
class Reasoning:
    """What one template does with ``--reasoning``.

    ``variables`` are those given and the switches for the mode; ``opened`` are the tags that the prompt has opened
    when the answer begins; ``notice`` is for the user, once.
    """

    variables: dict[str, object]
    tags: tuple[Tags, ...] = KNOWN_TAGS
    opened: Tags | None = None
    notice: str | None = None

    def splitter(self, *, continued: bool = False) -> ThinkingSplitter:
        """For one answer; ``continued``: for the rest of one that has its thinking behind it."""
        return ThinkingSplitter(self.tags, inside=None if continued else self.opened)


def reasoning_of(
    source: str | None, mode: Mode, variables: Mapping[str, object] | None = None, *, bound: bool = False
) -> Reasoning:
    """How a model with this template thinks.

    Args:
        source: the template's Jinja text, `EngineInfo.chat_template`; ``None``: not known.
        variables: for the template; a switch among them stands, whatever the mode.
        bound: a grammar bounds the answer from its first token on: there is no place for thinking, whatever the mode,
            and whatever the prompt has opened.
    """
    if bound:
        off = reasoning_of(source, "off", variables)
        return Reasoning(off.variables, tags=())
    given = dict(variables or {})
    if source is None:
        return Reasoning(given, notice=None if mode == "auto" else _UNKNOWN)
    template = ChatTemplate(source, "the model")
    switches = {name: values for name, values in _SWITCHES.items() if name in template.variables()}
    if mode != "auto":
        chosen = {name: on if mode == "on" else off for name, (on, off) in switches.items()}
        given = {**{name: value for name, value in chosen.items() if value is not None}, **given}
    tags = named_tags(source)
    notice = None
    if mode == "off" and tags and not switches:
        notice = "this chat template cannot turn thinking off: it is hidden, and takes its time"
    return Reasoning(given, tags or KNOWN_TAGS, _opened(template, given, tags or KNOWN_TAGS), notice)


def _opened(template: ChatTemplate, variables: dict[str, object], tags: tuple[Tags, ...]) -> Tags | None:
    try:
        prompt = template.render([Message("user", "?")], bos="", eos="", variables=variables).text
    except ModelError:  # it will be reported where the template is used
        return None
    return opened_by(prompt, tags)
