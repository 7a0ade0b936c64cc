"""Prompts to measure and to check with: those that come along, or a file of one's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from localspec.errors import UsageError
from localspec.types import Message

#: Category of prompts whose file names none.
UNNAMED = "prompts"


@dataclass(frozen=True, slots=True)
class Prompt:
    """``category`` groups prompts in tables; ``id`` is unique in its file."""

    id: str
    category: str
    text: str

    @property
    def messages(self) -> tuple[Message, ...]:
        return (Message("user", self.text),)


def built_in(package: str) -> tuple[Prompt, ...]:
    """The prompts that a package carries as ``prompts.jsonl``."""
    return tuple(_lines(package, (files(package) / "prompts.jsonl").read_text("utf-8")))


def read_prompts(path: Path) -> tuple[Prompt, ...]:
    """The prompts of a file. In a ``.jsonl`` file each line is an object with ``prompt`` and, if wanted, ``category``
    and ``id``; in any other each line is a prompt. Blank lines do not count.

    Raises:
        UsageError: it cannot be read, holds no prompt, or has a line that is none; the line is named.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}", hint="Check the path given to --prompts."
        ) from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text (byte {error.start})", hint="Convert it first.") from None
    if path.suffix == ".jsonl":
        found = tuple(_lines(str(path), text))
    else:
        lines = [line.strip() for line in text.splitlines()]
        found = tuple(Prompt(str(number), UNNAMED, line) for number, line in enumerate(lines, 1) if line)
    if not found:
        raise UsageError(f"{path} holds no prompt", hint="Write one a line.")
    return found


def _lines(name: str, text: str) -> Iterator[Prompt]:
    seen: set[str] = set()
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        prompt = _prompt(name, number, line)
        if prompt.id in seen:
            raise UsageError(f"{name}, line {number}: the id {prompt.id!r} is there twice", hint="Give it another.")
        seen.add(prompt.id)
        yield prompt


def _prompt(name: str, number: int, line: str) -> Prompt:
    try:
        item = json.loads(line)
    except ValueError as error:
        raise UsageError(f"{name}, line {number} is no JSON: {error}", hint="Write one object a line.") from None
    text = item.get("prompt") if isinstance(item, dict) else None
    if not isinstance(text, str) or not text:
        raise UsageError(
            f"{name}, line {number} has no prompt", hint='Each line is an object such as {"prompt": "Say hello."}.'
        )
    return Prompt(str(item.get("id", number)), str(item.get("category", UNNAMED)), text)
