"""Answers as servers stream them: server-sent events of OpenAI's protocol."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from localspec.client.web import Broken

#: Pieces of a stream, each with the moment it came.
Arrivals = Iterable[tuple[float, bytes]]
Event = Mapping[str, Any]
#: What closes a stream that is whole.
DONE = "[DONE]"
#: Characters of what a server says that are shown.
_SHOWN = 200


def lines(arrivals: Arrivals) -> Iterator[tuple[float, str]]:
    """Lines, and when each was complete."""
    now, rest = 0.0, b""
    for now, data in arrivals:
        *whole, rest = (rest + data).split(b"\n")
        yield from ((now, line.decode("utf-8", "replace")) for line in whole)
    yield now, rest.decode("utf-8", "replace")


def events(found: Iterable[tuple[float, str]]) -> Iterator[tuple[float, Event]]:
    """The objects of a stream, and when each came; an empty one for its close.

    Raises:
        Broken: a line is none, or the server reports an error.
    """
    for now, line in found:
        data = line.removeprefix("data:").strip()
        if not line.startswith("data:"):
            continue
        event = {} if data == DONE else _object(data)
        if event is None:
            raise Broken(f"the server sends {data[:_SHOWN]}", hint="See its log.")
        if event.get("error"):
            raise Broken(f"the server ends its answer: {reason(event)[:_SHOWN].rstrip('.')}", hint="See its log.")
        yield now, event


def reason(found: object) -> str:
    """What a server says of an error, on one line, whichever form of an error it has."""
    inner = found.get("error", found.get("detail", found)) if isinstance(found, dict) else found
    message = inner.get("message", inner) if isinstance(inner, dict) else inner
    return whole(" ".join(str(message).split()))


def _object(data: str) -> dict[str, Any] | None:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def choice(event: Event) -> Event:
    """The first choice of an event; an empty one where it has none, or something else in its place."""
    choices = event.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else {}


def thought(event: Event) -> str:
    """What an event brings of the thinking, under either of its names."""
    delta = _delta(event)
    return _text(delta, "reasoning_content") or _text(delta, "reasoning")


def answered(event: Event) -> str:
    """What it brings of the answer: to messages, or to a prompt."""
    return _text(_delta(event), "content") or _text(choice(event), "text")


def said(event: Event) -> str:
    """Both."""
    return thought(event) + answered(event)


def _delta(event: Event) -> Event:
    delta = choice(event).get("delta")
    return delta if isinstance(delta, dict) else {}


def _text(found: Event, name: str) -> str:
    text = found.get(name)
    return whole(text) if isinstance(text, str) else ""


def whole(text: str) -> str:
    """Halves of characters, which JSON can spell and nobody can write, as the sign for such."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
