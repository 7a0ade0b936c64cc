"""What tab offers: a pure function of the text before the cursor."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from localspec.errors import StoreError, UsageError
from localspec.models.demo import DEMO, DEMO_DRAFTERS
from localspec.talk import commands, settings
from localspec.talk.book import SessionBook
from localspec.talk.chat import Chat
from localspec.talk.engine_commands import MODES, SPEC_KEYS
from localspec.talk.presets import WORDS, user_presets
from localspec.text.printable import one_line

MOST = 200
#: Entries of a folder that are looked at: this is done at every key.
MOST_LOOKED = 10_000
SPEC_WORDS = ("on", *MODES, "type", *SPEC_KEYS)

#: A mention that ends where the cursor is.
_MENTION = re.compile(r'(?:^|\s)@(?:"(?P<quoted>[^"]*)|(?P<bare>[^\s"`]*))$')


@dataclass(frozen=True, slots=True)
class Completion:
    """``text`` in place of the last ``replaces`` characters; ``note`` stands beside it."""

    text: str
    replaces: int
    note: str = ""


def completions(before: str, chat: Chat, book: SessionBook | None = None) -> list[Completion]:
    """For a line that begins with a slash: command names, then what the command takes. ``book``: where sessions are.
    Elsewhere the files that the word before the cursor may mention."""
    if (mention := _MENTION.search(before[before.rfind("\n") + 1 :])) is not None and not commands.is_command(before):
        return _mentions(mention)
    if not before.startswith("/") or before.startswith("//") or "\n" in before:
        return []
    name, space, argument = before[1:].partition(" ")
    if not space:
        notes = {one: command.help for command in commands.COMMANDS for one in (command.name, *command.aliases)}
        return _of(name, notes, notes)
    try:
        kind = commands.find(name).completes
    except UsageError:
        return []
    match kind:
        case "path":
            return _paths(argument)
        case "model":
            return [*_of(argument, (DEMO,)), *_paths(argument)]
        case "draft":
            return [*_of(argument, ("off", *DEMO_DRAFTERS, DEMO)), *_paths(argument)]
        case "setting":
            return _settings(argument, chat)
        case "spec":
            return _spec(argument, chat)
        case "preset":
            return _presets(argument)
        case "switch":
            return _of(argument, ("on", "off"))
        case "system":
            return _of(argument, ("off",))
        case "session":
            return _sessions(argument, book)
        case "help":
            return _of(argument, commands.topics())
    return []


def _of(typed: str, words: Iterable[str], notes: dict[str, str] | None = None) -> list[Completion]:
    return [Completion(word, len(typed), (notes or {}).get(word, "")) for word in words if word.startswith(typed)]


def _settings(argument: str, chat: Chat) -> list[Completion]:
    often_first = sorted(settings.settable(chat.values), key=lambda one: one.group not in settings.OFTEN)
    options = {one.word: one for one in often_first}
    name, space, value = argument.partition(" ")
    if not space:
        return _of(name, options, {key: settings.shown(chat.values[one.name]) for key, one in options.items()})
    option = options.get(name)
    if option is None:
        return []
    choices = ("on", "off") if option.kind is bool else option.choices
    return _of(value, (*choices, settings.DEFAULT))


def _spec(argument: str, chat: Chat) -> list[Completion]:
    name, space, value = argument.partition(" ")
    if not space:
        return _of(name, SPEC_WORDS)
    if name == "type":
        from localspec.spec_types import SPEC_TYPES

        *_, last = value.rpartition(",")
        return _of(last, SPEC_TYPES)
    return _of(value, ("draw", "ratio")) if name == "accept" else []


def _sessions(argument: str, book: SessionBook | None) -> list[Completion]:
    try:
        there = () if book is None else book.store.sessions()
    except StoreError:
        return []
    return _of(argument, dict.fromkeys(one_line(one.title) for one in there if one.title))


def _presets(argument: str) -> list[Completion]:
    verb, space, name = argument.partition(" ")
    names = user_presets().names()
    if space:
        return _of(name, names) if verb in WORDS else []
    return _of(argument, (*names, *WORDS))


def _paths(argument: str) -> list[Completion]:
    """Files and folders; the part after the last slash is completed."""
    last = os.path.basename(argument)
    return [Completion(name, len(last)) for name in _names(argument)]


def _mentions(begun: re.Match[str]) -> list[Completion]:
    """The same for a mention, as a whole: in quotes where a name has blanks."""
    path = begun["quoted"] if begun["quoted"] is not None else begun["bare"]
    folder = path[: len(path) - len(os.path.basename(path))]
    names = [folder + name for name in _names(path) if "\n" not in name and '"' not in name]
    return [Completion(_mention(name, begun["quoted"] is not None), len(begun[0].lstrip())) for name in names]


def _mention(path: str, quoted: bool) -> str:
    if not quoted and not any(char.isspace() for char in path):
        return f"@{path}"
    return f'@"{path}' if path.endswith("/") else f'@"{path}"'  # in a folder there is more to come


def _names(argument: str) -> list[str]:
    """What the part after the last slash may become: names of files, and of folders with a slash."""
    folder, last = os.path.split(argument)
    try:
        entries = sorted(islice(os.scandir(Path(folder or ".").expanduser()), MOST_LOOKED), key=lambda one: one.name)
    except (OSError, RuntimeError, ValueError):  # RuntimeError: ~ of nobody
        return []
    found = [entry for entry in entries if entry.name.startswith(last) and (last or not entry.name.startswith("."))]
    return [entry.name + ("/" if entry.is_dir() else "") for entry in found[:MOST]]
