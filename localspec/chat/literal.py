"""Keeps what people write from turning into control tokens on its way through a chat template.

A template makes one string out of scaffolding and messages. To tell them apart afterwards, a *mark* is put
inside every control token's name in the messages before rendering: a character that occurs nowhere else.
Names that are still whole after rendering are scaffolding; marked ones are text, and the mark is taken out
again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from localspec.types import Message
from localspec.vocab import Vocab

#: Unicode's private use areas: nobody's text needs them, and no template's trim takes them for white space.
_PRIVATE = (range(0xE000, 0xF900), range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE))


@dataclass(frozen=True)
class ControlNames:
    """Name → id of a vocabulary's control tokens, and patterns over them."""

    ids: dict[str, int]

    @classmethod
    def of(cls, vocab: Vocab) -> ControlNames:
        # Two tokens of one name: the lower id is the one a tokenizer finds.
        tokens = sorted(vocab.control_tokens, reverse=True)
        return cls({name: token for token in tokens if (name := vocab.text(token))})

    def split(self, text: str) -> Iterator[tuple[str, int | None]]:
        """Cuts ``text`` at whole names, longest first: (name, id) for those, (text, None) for the rest."""
        if not self.ids:
            yield text, None
            return
        for part in re.split(f"({_any_of(self.ids)})", text):
            if part:
                yield part, self.ids.get(part)


@dataclass(frozen=True)
class Marker:
    """Puts marks into texts and takes them out."""

    names: ControlNames
    mark: str

    @classmethod
    def beside(cls, names: ControlNames, texts: Iterable[str]) -> Marker:
        """A marker whose mark occurs neither in ``texts`` nor in a name."""
        used = set(chain.from_iterable(texts)).union(*names.ids)
        return cls(names, next(c for c in map(chr, chain(*_PRIVATE)) if c not in used))

    def messages(self, messages: Iterable[Message]) -> list[Message]:
        return [Message(self.text(message.role), self.text(message.content)) for message in messages]

    def value(self, value: Any) -> Any:
        """All strings in nested lists and dicts, keys too."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.value(key): self.value(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        return value

    def text(self, text: str) -> str:
        """Marks whole names, in any case (a template may change it), and beginnings and ends of names at the
        borders, where scaffolding or another message could complete them."""
        if not self.names.ids:
            return text
        whole = re.compile(f"(?=({_any_of(self.names.ids)}))", re.IGNORECASE)
        for match in reversed(list(whole.finditer(text))):
            # A name of one character has no inside: the mark follows it, and `split` would take it for a
            # control token, so it is the one kind that is not protected; no vocabulary is known to have it.
            at = match.start() + 1
            text = text[:at] + self.mark + text[at:]
        start = len(text) - len(text.lstrip())
        end = len(text.rstrip())
        if self._touches(text[start:end], at_end=True):
            text = text[:end] + self.mark + text[end:]
        if self._touches(text[start:end], at_end=False):
            text = text[:start] + self.mark + text[start:]
        return text

    def clean(self, text: str) -> str:
        return text.replace(self.mark, "")

    def _touches(self, text: str, *, at_end: bool) -> bool:
        """Whether a proper part of a name, its beginning or its end, stands at that border of ``text``."""
        text = text.casefold()
        for name in map(str.casefold, self.names.ids):
            for n in range(1, min(len(name), len(text) + 1)):
                if text.endswith(name[:n]) if at_end else text.startswith(name[-n:]):
                    return True
        return False


def _any_of(names: Iterable[str]) -> str:
    return "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
