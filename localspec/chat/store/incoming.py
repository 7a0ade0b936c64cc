"""Conversations of other programs, read from the files they export, with their branches.

Taken are what the web UI of llama.cpp writes (JSON Lines or a ZIP of them; before, JSON with ``conv`` and ``messages``,
with ids that were numbers once; dumps of its tables), lists of messages as OpenAI's interface has them, and our own
transcripts. What cannot be kept, such as images, is counted.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from localspec.chat.conversation import ROLES, Turn
from localspec.chat.store.entries import Entry, Session, new_id, now, timestamp, title_of
from localspec.chat.store.tree import MessageTree
from localspec.chat.transcript import MAX_BYTES
from localspec.errors import UsageError
from localspec.text.thinking import ThinkingSplitter
from localspec.types import Message

_ZIP = b"PK\x03\x04"
_TREE_KEYS = ("parent", "children")
_LATEST = 4e12  # milliseconds: more is no time of a chat
Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Incoming:
    """A conversation to be taken in. ``lost`` counts images, sounds and results of tools, which have no place here."""

    session: Session
    entries: tuple[Entry, ...]
    lost: int = 0


def read_conversations(path: str | Path) -> tuple[Incoming, ...]:
    """All conversations of a file, in its order. Read twice, they and their messages have the same ids, if they had any
    in the file.

    Raises:
        UsageError: it cannot be read, or holds none.
    """
    path = Path(path)
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{path} cannot be read: {reason}", hint="Check the name and the folder.") from error
    if len(data) > MAX_BYTES:
        raise UsageError(f"{path} has more than {MAX_BYTES >> 20} MB", hint="Export fewer conversations at a time.")
    try:
        found = tuple(_conversation(head, messages) for text in _texts(data) for head, messages in _parts(text))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, zipfile.BadZipFile) as error:
        raise _foreign(path) from error
    if not any(one.entries for one in found):
        raise _foreign(path)
    return tuple(one for one in found if one.entries)


def _foreign(path: Path) -> UsageError:
    return UsageError(
        f"{path} holds no conversation that can be read",
        hint="Give what llama.cpp's web UI exports, a list of messages with role and content, or what /save wrote.",
    )


# From bytes to pairs of a head (title, times) and a list of messages


def _texts(data: bytes) -> Iterator[str]:
    if not data.startswith(_ZIP):
        yield data.decode("utf-8-sig")
        return
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        left = MAX_BYTES
        for entry in archive.infolist():
            if entry.filename.lower().endswith((".jsonl", ".json")):
                left -= entry.file_size
                if left < 0:
                    raise ValueError("the archive unfolds into too much")
                yield archive.read(entry).decode("utf-8-sig")


def _parts(text: str) -> list[tuple[Raw, list[Raw]]]:
    try:
        return _of_value(json.loads(text))
    except json.JSONDecodeError:
        return _of_lines([json.loads(line) for line in text.split("\n") if line.strip()])  # texts have other breaks


def _of_value(value: Any) -> list[tuple[Raw, list[Raw]]]:
    match value:
        case {"type": "session"}:
            return [(value, [])]
        case {"conv": dict(head), "messages": list(messages)}:
            return [(head, messages)]
        case {"messages": list(messages)}:
            return [(value, messages)]
        case [{"table": str()}, *_]:
            return _of_tables(value)
        case [{"role": str()}, *_]:
            return [({}, value)]
        case [{"type": "session"}, *_]:
            return _of_lines(value)
        case [dict(), *_]:
            return [part for one in value for part in _of_value(one)]
    raise ValueError("no conversation")


def _of_lines(records: list[Any]) -> list[tuple[Raw, list[Raw]]]:
    """A line for each session, and one for each of its messages after it; other lines are for other readers."""
    found: list[tuple[Raw, list[Raw]]] = []
    for record in records:
        if record["type"] == "session":
            found.append((record, []))
        elif record["type"] == "message":
            found[-1][1].append(record["message"])
    return found


def _of_tables(tables: list[Any]) -> list[tuple[Raw, list[Raw]]]:
    rows = {table["table"]: table["rows"] for table in tables}
    messages = rows.get("messages", [])
    return [(head, [one for one in messages if one["convId"] == head["id"]]) for head in rows["conversations"]]


# From those to sessions


def _conversation(head: Raw, messages: list[Raw]) -> Incoming:
    named = len({str(one["id"]) for one in messages if "id" in one}) == len(messages)  # each by a name of its own
    branches = named and any(one.get(key) for one in messages for key in _TREE_KEYS)
    reading = _Reading(str(head["id"]) if head.get("id") else new_id())
    reading.take(_in_order(messages) if branches else _in_line(messages))
    entries = tuple(reading.entries)
    first = next((entry.content for entry in entries if entry.role == "user"), "")
    title = next((head[key] for key in ("name", "title") if isinstance(head.get(key), str) and head[key]), "")
    created = min((entry.created for entry in entries), default=now())
    session = Session(
        reading.id_of("conversation"),
        title_of(title or first),
        created,
        _time(head.get("lastModified")) or max((entry.created for entry in entries), default=created),
        system=reading.system if reading.system is not None else _string(head.get("system")),
    )
    return Incoming(replace(session, leaf=reading.leaf(head.get("currNode"))), entries, reading.lost)


def _in_line(messages: list[Raw]) -> Iterator[tuple[Raw, str | None, str]]:
    """Messages one after the other, each with its parent's key and its own: its place."""
    for number, message in enumerate(messages):
        yield message, str(number - 1) if number else None, str(number)


def _in_order(messages: list[Raw]) -> Iterator[tuple[Raw, str | None, str]]:
    """The same of a tree: parents first, siblings as in the file. What hangs on nothing, or in a ring, begins a
    branch."""
    known = {str(one["id"]): one for one in messages}
    below: dict[str | None, list[str]] = {}
    for key, message in known.items():
        parent = str(message.get("parent"))
        below.setdefault(parent if parent in known and parent != key else None, []).append(key)
    seen: set[str] = set()
    for start in (*below.get(None, ()), *known):
        stack: list[tuple[str, str | None]] = [(start, None)]
        while stack:
            key, parent_key = stack.pop()
            if key not in seen:
                seen.add(key)
                yield known[key], parent_key, key
                stack += [(child, key) for child in reversed(below.get(key, []))]


class _Reading:
    """One conversation while it is read. ``name`` is what it is called in the file."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.system: str | None = None
        self.lost = 0
        self.entries: list[Entry] = []
        #: Key in the file → the message it became, or what it hung on if it became none.
        self._became: dict[str, str | None] = {}

    def id_of(self, key: str) -> str:
        """Always the same for the same thing."""
        return hashlib.sha256(f"{self._name}\n{key}".encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def take(self, messages: Iterator[tuple[Raw, str | None, str]]) -> None:
        for message, parent_key, key in messages:
            parent = None if parent_key is None else self._became[parent_key]
            role = message["role"]
            if role in ROLES and message.get("type") != "root":
                entry = self._entry(message, parent, self.id_of(f"message {key}"))
                self.entries.append(entry)
                self._became[key] = entry.id
                continue
            self._became[key] = parent
            text = self._text(message)
            if role == "system" and text and self.system is None:
                self.system = text
            elif role != "system":
                self.lost += bool(text)

    def leaf(self, current: object) -> str | None:
        """The message that the conversation goes on after."""
        tree = MessageTree(self.entries)
        at = self._became.get(str(current))
        if at is None:
            at = self.entries[-1].id if self.entries else None
        return None if at is None else tree.leaf_below(at)

    def _entry(self, message: Raw, parent: str | None, name: str) -> Entry:
        content, thinking = self._text(message), ""
        for key in ("reasoningContent", "reasoning_content", "thinking"):
            thinking = thinking or _string(message.get(key)) or ""
        if message["role"] == "assistant" and not thinking:
            content, thinking = _told_apart(content)
        made = {"model": message["model"]} if message.get("model") else {}
        went = {"timings_of_llama_cpp": message["timings"]} if message.get("timings") else {}
        turn = Turn(Message(message["role"], content), thinking, stopped=message.get("stopped") is True)
        return Entry(name, parent, turn, _time(message.get("timestamp")) or now(), made, went)

    def _text(self, message: Raw) -> str:
        """What a message says, after the texts of files that came with it."""
        files = ""
        for extra in message.get("extra") or ():
            if isinstance(extra.get("content"), str):
                files += f"{extra.get('name', 'file')}:\n{extra['content']}\n\n"
            else:
                self.lost += 1
        content = message.get("content") or ""
        if isinstance(content, str):
            return files + content
        texts = [part["text"] for part in content if part.get("type") == "text"]
        self.lost += len(content) - len(texts)
        return files + "\n".join(texts)


def _told_apart(content: str) -> tuple[str, str]:
    """Answer and thinking of a text that has both, with tags between."""
    splitter = ThinkingSplitter()
    pieces = [*splitter.push(content), *splitter.finish()]
    answer = "".join(piece.text for piece in pieces if piece.kind == "answer")
    return answer, "".join(piece.text for piece in pieces if piece.kind == "thinking")


def _time(milliseconds: object) -> str | None:
    """Of a time in milliseconds since 1970, if it is one."""
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int | float) or not 0 < milliseconds < _LATEST:
        return None
    return timestamp(datetime.fromtimestamp(milliseconds / 1000, UTC))


def _string(value: object) -> str | None:
    return value if isinstance(value, str) else None
