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
from functools import cached_property, lru_cache
from itertools import chain, pairwise
from typing import Any

from localspec.types import Message
from localspec.vocab import Vocab

#: Unicode's private use areas: nobody's text needs them, and no template's trim takes them for white space.
_PRIVATE = (range(0xE000, 0xF900), range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE))


@dataclass(frozen=True)
class ControlNames:
    """Name → id of a vocabulary's control tokens. Some have thousands, so names are looked up, not tried in turn."""

    ids: dict[str, int]

    @classmethod
    def of(cls, vocab: Vocab) -> ControlNames:
        # Two tokens of one name: the lower id is the one a tokenizer finds.
        tokens = sorted(vocab.control_tokens, reverse=True)
        return cls({name: token for token in tokens if (name := vocab.text(token))})

    def split(self, text: str) -> Iterator[tuple[str, int | None]]:
        """Cuts ``text`` at whole names, longest first: (name, id) for those, (text, None) for the rest."""
        done = 0
        for match in self._starts.finditer(text) if self.ids else ():
            at = match.start()
            name = next((text[at : at + n] for n in self._lengths if text[at : at + n] in self.ids), None)
            if name is None or at < done:
                continue
            if at > done:
                yield text[done:at], None
            yield name, self.ids[name]
            done = at + len(name)
        if done < len(text):
            yield text[done:], None

    def find(self, text: str) -> list[int]:
        """Where names begin in ``text``, in any case; they may overlap."""
        if not self.ids:
            return []
        starts = (match.start() for match in self._starts.finditer(text))
        return [at for at in starts if any(_folded(text[at : at + n]) in self._names for n in self._lengths)]

    def begins_at_end(self, text: str) -> bool:
        """Whether ``text`` ends with the beginning of a name, in any case."""
        end = _folded(text[-self._longest :])
        return any(end[at:] in self._beginnings for at in range(len(end)))

    def ends_at_start(self, text: str) -> bool:
        """Whether ``text`` starts with the end of a name, in any case."""
        start = _folded(text[: self._longest])
        return any(start[:n] in self._ends for n in range(1, len(start) + 1))

    @cached_property
    def _lengths(self) -> list[int]:
        return sorted(set(map(len, self.ids)), reverse=True)

    @cached_property
    def _longest(self) -> int:
        return max(self._lengths, default=1)

    @cached_property
    def _starts(self) -> re.Pattern[str]:
        first = "".join(sorted({name[0] for name in self.ids}))
        return re.compile(f"[{re.escape(first)}]", re.IGNORECASE)

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(map(_folded, self.ids))

    @cached_property
    def _beginnings(self) -> frozenset[str]:
        return frozenset(name[:n] for name in self._names for n in range(1, len(name)))

    @cached_property
    def _ends(self) -> frozenset[str]:
        return frozenset(name[n:] for name in self._names for n in range(1, len(name)))


@lru_cache(maxsize=2)
def control_names(vocab: Vocab) -> ControlNames:
    """`ControlNames.of` a vocabulary, which never changes."""
    return ControlNames.of(vocab)


@dataclass(frozen=True)
class Marker:
    """Puts marks into texts and takes them out."""

    names: ControlNames
    mark: str

    @classmethod
    def beside(cls, names: ControlNames, texts: Iterable[str]) -> Marker:
        """A marker whose mark occurs neither in ``texts`` nor in a name."""
        return cls(names, next(unused_characters([*texts, *names.ids])))

    def messages(self, messages: Iterable[Message]) -> list[Message]:
        return [
            Message(self.text(one.role), self.text(one.content), tuple((name, self.value(x)) for name, x in one.more))
            for one in messages
        ]

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
        # A name of one character has no inside: the mark follows it, and `split` would take it for a control
        # token, so it is the one kind that is not protected; no vocabulary is known to have it.
        cuts = [0, *(at + 1 for at in self.names.find(text)), len(text)]
        text = self.mark.join(text[a:b] for a, b in pairwise(cuts))
        start = len(text) - len(text.lstrip())
        end = len(text.rstrip())
        if self.names.begins_at_end(text[start:end]):
            text = text[:end] + self.mark + text[end:]
        if self.names.ends_at_start(text[start:end]):
            text = text[:start] + self.mark + text[start:]
        return text

    def clean(self, text: str) -> str:
        return text.replace(self.mark, "")


def unused_characters(texts: Iterable[str]) -> Iterator[str]:
    """Private characters that occur in none of ``texts``."""
    used = set(chain.from_iterable(texts))
    return (char for char in map(chr, chain(*_PRIVATE)) if char not in used)


def _folded(text: str) -> str:
    """``text`` without differences of case, and as long as it was."""
    return "".join(fold if len(fold := char.casefold()) == 1 else char for char in text)
