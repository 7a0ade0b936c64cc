"""A conversation with all its branches, as the web UI of llama.cpp takes it in: JSON Lines, one for the
conversation and one for each message. `localspec.chat.store.incoming` reads it as well."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from localspec.chat.conversation import Turn
from localspec.chat.store.entries import Entry, Session, new_id, now, title_of
from localspec.chat.store.tree import MessageTree

_ROOT, _SYSTEM = "root", "system"


def for_web_ui(session: Session, tree: MessageTree) -> str:
    """The whole file. Plain ASCII, so that no character in a text can end a line."""
    messages = [*_messages(session, tree)]
    head = {
        "id": session.id,
        "name": session.title or title_of(next((one.content for one in tree if one.role == "user"), "")),
        "lastModified": max(one["timestamp"] for one in messages),
        "currNode": session.leaf if session.leaf in tree else messages[0]["id"],
    }
    records: list[Mapping[str, Any]] = [{"type": "session", "harness": "localspec", **head}]
    records += [{"type": "message", "message": one} for one in messages]
    return "".join(f"{json.dumps(one)}\n" for one in records)


def of_turns(system: str | None, turns: Sequence[Turn], title: str = "") -> tuple[Session, MessageTree]:
    """A session of one branch, of a conversation that is not saved."""
    tree, parent = MessageTree(), None
    for turn in turns:
        tree.add(entry := Entry(new_id(), parent, turn, now()))
        parent = entry.id
    return Session(new_id(), title, created=now(), system=system, leaf=parent), tree


def _messages(session: Session, tree: MessageTree) -> Iterator[dict[str, Any]]:
    """Each after its parent, and later: that is how the web UI puts a branch in order."""
    begin = min([_milliseconds(one.created) for one in tree] or [_milliseconds(session.created)])
    root, top = f"{session.id}-{_ROOT}", f"{session.id}-{_SYSTEM}"
    first = [one.id for one in tree.below(None)]
    times: dict[str | None, int] = {None: begin}
    yield _node(session, root, _ROOT, "system", "", None, begin - 2, [top] if session.system else first)
    if session.system:
        yield _node(session, top, _SYSTEM, "system", session.system, root, begin - 1, first)
    for entry in tree:
        parent = entry.parent if entry.parent in tree else None
        times[entry.id] = time = max(_milliseconds(entry.created), times[parent] + 1)
        hangs_on = parent or (top if session.system else root)
        below = [one.id for one in tree.below(entry.id)]
        yield _node(session, entry.id, "text", entry.role, entry.content, hangs_on, time, below) | _more(entry)


def _node(
    session: Session, name: str, kind: str, role: str, text: str, parent: str | None, time: int, below: Iterable[str]
) -> dict[str, Any]:
    return {
        "id": name,
        "convId": session.id,
        "type": kind,
        "timestamp": time,
        "role": role,
        "content": text,
        "parent": parent,
        "children": [*below],
    }


def _more(entry: Entry) -> dict[str, Any]:
    """What only answers have."""
    model, timings = entry.params.get("model"), _timings(entry.stats)
    return {
        **({"reasoningContent": entry.turn.thinking} if entry.turn.thinking else {}),
        **({"stopped": True} if entry.turn.stopped else {}),
        **({"model": Path(model).name} if isinstance(model, str) and model else {}),
        **({"timings": timings} if timings else {}),
    }


def _timings(stats: Mapping[str, Any]) -> dict[str, Any]:
    """llama.cpp's, of an answer that was given here or there; empty where nothing is known of it."""
    ours, theirs = stats.get("timings"), stats.get("timings_of_llama_cpp")
    if isinstance(theirs, dict):
        return theirs
    names = ("prompt_n", "cache_n", "prompt_s", "predicted_n", "predicted_s")
    if not isinstance(ours, dict) or not all(isinstance(ours.get(name), int | float) for name in names):
        return {}
    return {
        "cache_n": ours["cache_n"],
        "prompt_n": ours["prompt_n"] - ours["cache_n"],
        "prompt_ms": 1000 * ours["prompt_s"],
        "predicted_n": ours["predicted_n"],
        "predicted_ms": 1000 * ours["predicted_s"],
    }


def _milliseconds(moment: str) -> int:
    """Since 1970, of a time as entries have it."""
    try:
        return int(1000 * datetime.fromisoformat(moment).timestamp())
    except (ValueError, OverflowError):  # of a file that somebody else has written
        return _milliseconds(now())
