"""What a user should know of how a conversation becomes a prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from localspec.chat.template import ChatTemplate
from localspec.errors import ModelError
from localspec.types import Message


def notices(
    source: str | None, messages: Sequence[Message], variables: Mapping[str, object] | None = None
) -> tuple[str, ...]:
    """A line each for what was changed so that the template takes the messages, and for variables that it never looks
    at. The same lines come in every turn of a conversation: show each once.

    Args:
        source: the template's Jinja text, `EngineInfo.chat_template`; ``None``: not known.
        variables: those that the user gave.
    """
    if source is None:
        return ()
    template = ChatTemplate(source, "the model")
    known = template.variables()
    unknown = [name for name in variables or {} if name not in known]
    lines = [f"this chat template never looks at {name} (--chat-template-kwargs)" for name in unknown]
    try:
        repairs = template.render(messages, bos="", eos="", variables=variables).repairs
    except ModelError:  # it will be reported where the template is used
        repairs = ()
    return (*(repair.notice for repair in repairs), *lines)
