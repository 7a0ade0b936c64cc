"""What can be done to a conversation that a template refuses.

Many templates were written for alternating questions and answers and nothing else. Each repair keeps all that was
said and moves it to where such a template takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from localspec.types import Message

Messages = Sequence[Message]


@dataclass(frozen=True)
class Repair:
    """One change. ``apply`` gives ``None`` where there is nothing to change; ``notice`` tells the user of it."""

    apply: Callable[[Messages], list[Message] | None]
    notice: str


def _open_with_user(messages: Messages) -> list[Message] | None:
    at = _after_system(messages)
    if at == len(messages) or messages[at].role == "user":
        return None
    return [*messages[:at], Message("user", ""), *messages[at:]]


def _merge_questions(messages: Messages) -> list[Message] | None:
    merged: list[Message] = []
    for message in messages:
        if message.role == "user" and merged and merged[-1].role == "user":
            merged[-1] = Message("user", _joined(merged[-1].content, message.content))
        else:
            merged.append(message)
    return merged if len(merged) < len(messages) else None


def _fold_system(messages: Messages) -> list[Message] | None:
    at = _after_system(messages)
    first = next((i for i in range(at, len(messages)) if messages[i].role == "user"), None)
    if at == 0 or first is None:
        return None
    parts = [message.content for message in (*messages[:at], messages[first])]
    return [*messages[at:first], Message("user", _joined(*parts)), *messages[first + 1 :]]


def _after_system(messages: Messages) -> int:
    return next((i for i, message in enumerate(messages) if message.role != "system"), len(messages))


def _joined(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)


#: In the order in which they are applied.
_REPAIRS = (
    Repair(_open_with_user, "this chat template begins with a question: an empty one was put in front"),
    Repair(_merge_questions, "this chat template takes no two questions in a row: they were joined"),
    Repair(_fold_system, "this chat template has no system message: it was put in front of the first question"),
)


def repaired(messages: Messages) -> Iterator[tuple[list[Message], tuple[Repair, ...]]]:
    """The messages with one, two, … repairs, the last repairs in the list first; those that change nothing are
    left out."""
    for n in range(1, len(_REPAIRS) + 1):
        for repairs in sorted(combinations(range(len(_REPAIRS)), n), reverse=True):
            result: list[Message] | None = list(messages)
            for i in repairs:
                result = None if result is None else _REPAIRS[i].apply(result)
            if result is not None:
                yield result, tuple(_REPAIRS[i] for i in repairs)
