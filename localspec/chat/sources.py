"""Chat templates and their variables as a user gives them."""

from __future__ import annotations

import json
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from localspec.chat.builtin import NAMES, builtin_template
from localspec.chat.template import ChatTemplate
from localspec.errors import ModelError, UsageError

MAX_BYTES = 1 << 20
#: Variables that are ours to set.
RESERVED = ("messages", "add_generation_prompt", "bos_token", "eos_token")


def template_from(text: str | None = None, file: str | Path | None = None) -> ChatTemplate | None:
    """The template that replaces a model's own: ``text`` is Jinja, or one of `builtin.NAMES`.

    Returns:
        ``None`` if neither is given.

    Raises:
        UsageError: both are given, an unknown name, a file that cannot be read, or a template that is broken.
    """
    if text is not None and file is not None:
        raise UsageError("--chat-template and --chat-template-file are both given", hint="Give one of them.")
    if file is not None:
        template = ChatTemplate(_read(Path(file)), str(file))
    elif text is not None:
        template = _named_or_written(text)
    else:
        return None
    try:
        template.check()
    except ModelError as error:
        raise UsageError(error.message, hint="Mend it, or take a template by name, e.g. chatml.") from error
    return template


def template_variables(text: str | None) -> tuple[tuple[str, object], ...]:
    """What ``--chat-template-kwargs`` holds, as `GenerationRequest.template_kwargs` takes it.

    Raises:
        UsageError: it is no JSON object, or a name in it cannot be a variable or is not free.
    """
    if text is None:
        return ()
    example = """Write a JSON object, e.g. '{"enable_thinking": false}'."""
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--chat-template-kwargs is not JSON: {_short(error)}", hint=example) from error
    if not isinstance(value, dict):
        raise UsageError(f"--chat-template-kwargs {_short(text)} is not a JSON object", hint=example)
    for name in value:
        if name in RESERVED:
            raise UsageError(f"--chat-template-kwargs may not set {name}", hint="It is set from the conversation.")
        if not name.isidentifier():
            raise UsageError(f"--chat-template-kwargs: {_short(name)!r} is no variable's name", hint=example)
    return tuple(value.items())


def _named_or_written(text: str) -> ChatTemplate:
    if "{" in text or "\n" in text:
        return ChatTemplate(text, "--chat-template")
    source = builtin_template(text)
    if source is None:
        close = get_close_matches(text, NAMES, n=1)
        guess = f"Did you mean {close[0]}? " if close else ""
        raise UsageError(
            f"--chat-template {_short(text)!r} is neither a name nor Jinja", hint=f"{guess}Names: {', '.join(NAMES)}."
        )
    return ChatTemplate(source, text)


def _read(path: Path) -> str:
    hint = "Check --chat-template-file."
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
        text = data.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is not UTF-8 text"
        raise UsageError(f"the chat template {path} cannot be read: {reason}", hint=hint) from error
    if len(data) > MAX_BYTES:
        raise UsageError(f"the chat template {path} has more than {MAX_BYTES >> 20} MB", hint=hint)
    if not text.strip():
        raise UsageError(f"the chat template {path} is empty", hint=hint)
    return text


def _short(value: object) -> str:
    return " ".join(str(value).split())[:80]
