"""A conversation as Markdown, to read."""

from __future__ import annotations

import re

from localspec.chat.conversation import Conversation, Turn
from localspec.text.printable import one_line

_SIGNS = re.compile(r"[\\`*_\[\]<>&]")
#: A fence of code: an opening one in backticks has none after them.
_FENCE = re.compile(r"(?P<indent>[ \t]*)(?P<marks>`{3,}(?=[^`]*$)|~{3,})(?P<info>.*)")


def markdown(conversation: Conversation, title: str) -> str:
    """Its title, its system message and its turns below each other, each as it was written."""
    parts = ["# " + _SIGNS.sub(r"\\\g<0>", one_line(title))]
    if conversation.system is not None:
        parts.append(f"## System\n\n{closed(conversation.system.strip())}")
    parts += [_section(turn) for turn in conversation.turns]
    text = "\n\n".join(parts).rstrip("\n") + "\n"
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def closed(text: str) -> str:
    """The text, and the end of a fence that is open there: an answer may be stopped inside code, and all that follows
    would be taken for more of it."""
    opened: re.Match[str] | None = None
    for line in text.split("\n"):
        fence = _FENCE.fullmatch(line)
        if fence is None:
            continue
        if opened is None:
            opened = fence
        elif fence["marks"].startswith(opened["marks"]) and not fence["info"].strip():
            opened = None
    # As far in as it began: further out it would begin another one where the first stands in a list.
    return text if opened is None else f"{text}\n{opened['indent']}{opened['marks']}"


def _section(turn: Turn) -> str:
    """A turn; thinking is folded away."""
    parts = [f"## {turn.message.role.capitalize()}"]
    if turn.thinking:
        thinking = closed(turn.thinking.strip())
        parts.append(f"<details>\n<summary>Thinking</summary>\n\n{thinking}\n\n</details>")
    parts.append(closed(turn.message.content.strip()))
    if turn.stopped:
        parts.append("*(stopped)*")
    return "\n\n".join(part for part in parts if part)
