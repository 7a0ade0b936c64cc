"""Conversations as files: saved, taken up again, exported for people and for other programs.

A saved conversation is a JSON object whose first key says whose it is: ``{"localspec": 1, "system": …, "messages":
[{"role", "content", "thinking"?, "stopped"?}, …], "settings": {…}}``. Text that no UTF-8 can hold (a lone half of a
surrogate pair) is written as the JSON escape it is read back from.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from localspec.chat.conversation import ROLES, Conversation, Turn
from localspec.chat.markdown import markdown
from localspec.chat.page import page
from localspec.errors import UsageError

FORMAT = 1
MAX_BYTES = 64 << 20
Form = Literal["md", "json", "html", "jsonl"]
#: What the ending of a file's name asks for. JSON Lines have all branches: `localspec.chat.store.outgoing`.
FORMS: dict[str, Form] = {
    ".md": "md",
    ".markdown": "md",
    ".json": "json",
    ".html": "html",
    ".htm": "html",
    ".jsonl": "jsonl",
}
_MARK = "localspec"


@dataclass(frozen=True)
class Saved:
    """A conversation from a file, and the settings it was held with, by name."""

    conversation: Conversation
    settings: dict[str, Any] = field(default_factory=dict)


def save(
    path: str | Path, conversation: Conversation, settings: Mapping[str, Any] | None = None, *, overwrite: bool = False
) -> None:
    """Writes a file that `load` reads, whole or not at all. An older transcript of that name is replaced.

    Args:
        settings: values that JSON can hold.
        overwrite: replace a file that is no transcript, too.

    Raises:
        UsageError: the file is something else and ``overwrite`` is off, or it cannot be written.
    """
    path = Path(path)
    if not overwrite and os.path.lexists(path):
        _check_ours(path)
    value = {
        _MARK: FORMAT,
        "system": conversation.system,
        "messages": [_turn(turn) for turn in conversation.turns],
        "settings": dict(settings or {}),
    }
    write(path, _json(value), overwrite=True)


def load(path: str | Path) -> Saved:
    """Reads what `save` wrote.

    Raises:
        UsageError: there is no such file, it is damaged, or it is something else.
    """
    path = Path(path)
    value = _read(path)
    version = value[_MARK]
    if version != FORMAT:
        raise UsageError(
            f"{path} has the transcript format {version!r:.20}, this localspec reads {FORMAT}",
            hint="Use the version of localspec that wrote it, or a newer one.",
        )
    system, settings = value.get("system"), value.get("settings", {})
    if not isinstance(system, str | None) or not isinstance(settings, dict):
        raise _damaged(path, "its system message or its settings are not of the right kind")
    messages = value.get("messages")
    if not isinstance(messages, list):
        raise _damaged(path, "it has no list of messages")
    conversation = Conversation(system)
    for number, message in enumerate(messages, start=1):
        match message:
            case {"role": str(role), "content": str(content)} if role in ROLES:
                thinking, stopped = message.get("thinking", ""), message.get("stopped", False)
            case _:
                thinking = stopped = None
        if not isinstance(thinking, str) or not isinstance(stopped, bool):
            raise _damaged(path, f"message {number} has no role ({' or '.join(ROLES)}) and text")
        conversation.add(role, content, thinking=thinking, stopped=stopped)
    return Saved(conversation, settings)


def form_of(path: Path) -> Form:
    """What a file of this name should hold.

    Raises:
        UsageError: its ending says nothing.
    """
    form = FORMS.get(path.suffix.lower())
    if form is None:
        raise UsageError(
            f"{path} ends in neither .md nor .json nor .html nor .jsonl", hint="The ending says what is written."
        )
    return form


def export(conversation: Conversation, form: Form, title: str = "Conversation") -> str:
    """The conversation for others: Markdown to read or a page for a browser, which call it ``title``, or the list of
    messages that OpenAI's interface and its many users take. Encodable as UTF-8 in any case.

    Raises:
        UsageError: another ``form``.
    """
    if form == "json":
        messages = [{"role": message.role, "content": message.content} for message in conversation.prompt()]
        return _json(messages)
    if form == "md":
        return markdown(conversation, title)
    if form == "html":
        return page(conversation, title)
    raise UsageError(f"there is no export format {form}", hint="Use md, json or html.")


def write(path: str | Path, text: str, *, overwrite: bool = False) -> None:
    """Writes a file whole or not at all: it is made beside its place and moved there when it is complete.

    Raises:
        UsageError: there is a file already and ``overwrite`` is off, or it cannot be written.
    """
    path = Path(path)
    if not overwrite and os.path.lexists(path):
        raise UsageError(f"{path} exists already", hint="Choose another name, or remove that file first.")
    try:
        _replace(path.resolve(), text.encode("utf-8"))  # resolved: a link stays a link
    except (OSError, RuntimeError, ValueError) as error:
        raise _unusable("written", path, error) from error


def _replace(path: Path, data: bytes) -> None:
    if path.exists() and not path.is_file():
        raise OSError(None, "it is not a regular file")
    new = path.with_name(f".{path.name[:100]}.{secrets.token_hex(4)}")
    try:
        with open(new, "xb") as file:
            if path.exists():
                os.chmod(new, path.stat().st_mode & 0o777)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def _read(path: Path) -> dict[str, Any]:
    """The object in a file that carries our mark."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise _unusable("read", path, error) from error
    if len(data) > MAX_BYTES:
        raise UsageError(
            f"{path} has more than {MAX_BYTES >> 20} MB: that is no conversation", hint="Check the file's name."
        )
    try:
        value = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        if f'"{_MARK}"'.encode() in data[:100]:
            raise _damaged(path, "it is cut off or was changed") from error
        raise _foreign(path) from error
    version = value.get(_MARK) if isinstance(value, dict) else None
    if not isinstance(version, int) or isinstance(version, bool):
        raise _foreign(path)
    assert isinstance(value, dict)
    return value


def _check_ours(path: Path) -> None:
    try:
        _read(path)
    except UsageError as error:
        raise UsageError(
            f"{path} exists and is not a conversation of ours", hint="Choose another name, or remove that file first."
        ) from error


def _turn(turn: Turn) -> dict[str, object]:
    value: dict[str, object] = {"role": turn.message.role, "content": turn.message.content}
    if turn.thinking:
        value["thinking"] = turn.thinking
    if turn.stopped:
        value["stopped"] = True
    return value


def _json(value: object) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise UsageError(f"a setting cannot be saved: {error}", hint="Change that setting.") from error
    # Lone surrogates stand inside strings only, and Python's escape for them is JSON's.
    return text.encode("utf-8", "backslashreplace").decode()


def _unusable(what: str, path: Path, error: Exception) -> UsageError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    return UsageError(f"{path} cannot be {what}: {reason}", hint="Check the name and the folder.")


def _foreign(path: Path) -> UsageError:
    return UsageError(f"{path} is not a saved conversation", hint="Give a file that /save has written.")


def _damaged(path: Path, why: str) -> UsageError:
    return UsageError(f"the saved conversation {path} is damaged: {why}", hint="Restore it from a copy.")
