"""What a user looks for, as a query of the index of words; and what was found, with the places marked."""

from __future__ import annotations

import re
import secrets

from localspec.chat.store.entries import Snippet

#: Words of a snippet, and characters before a place that was found without the index.
_WORDS, _BEFORE = 16, 30
_LONGEST = 120


def query_of(text: str) -> str:
    """A query for messages with all words of ``text``; the last may be only the beginning of one. Every word is quoted:
    nothing in it is an operator. Empty where there is no word to look up."""
    words = [word for word in _plain(text).split() if any(char.isalnum() for char in word)]
    quoted = ['"' + word.replace('"', '""') + '"' for word in words]
    return " ".join([*quoted[:-1], f"{quoted[-1]} *"]) if quoted else ""


def pattern_of(text: str) -> str:
    r"""A pattern for LIKE, with ``\`` as its escape, for texts with ``text`` somewhere."""
    return "%" + re.sub(r"([\\%_])", r"\\\1", _plain(text).strip()) + "%"


def _plain(text: str) -> str:
    """What can be looked for: no NUL, at which SQL ends a text, and no half of a character."""
    return re.sub("[\0\ud800-\udfff]", " ", text)


class Marks:
    """What stands around a place that was found, for the time of one query: no text can hold it."""

    def __init__(self) -> None:
        self.open, self.close = f"\x02{secrets.token_hex(8)}\x02", f"\x03{secrets.token_hex(8)}\x03"

    @property
    def expression(self) -> tuple[str, tuple[object, ...]]:
        """SQL for a snippet of the table ``words``, and its parameters."""
        return "snippet(words, 0, ?, ?, '…', ?)", (self.open, self.close, _WORDS)

    def snippet(self, marked: str) -> Snippet:
        """The text without marks, and where they were. White space is made one space."""
        text, places = "", []
        for number, part in enumerate(re.split(f"{self.open}|{self.close}", " ".join(marked.split()))):
            if number % 2 and part:
                places.append((len(text), len(text) + len(part)))
            text += part
        return Snippet(text, tuple(places))


def around(text: str, wanted: str) -> Snippet:
    """A part of ``text`` with the first place that reads ``wanted``, whatever the case."""
    line, plain = " ".join(text.split()), " ".join(_plain(wanted).split())
    found = re.search(re.escape(plain), line, re.IGNORECASE)
    if found is None:
        return Snippet(line[:_LONGEST], ())
    start = max(0, found.start() - _BEFORE)
    dots = "…" if start else ""
    end = max(start + _LONGEST, found.end())
    tail = "…" if end < len(line) else ""
    shift = len(dots) - start
    return Snippet(f"{dots}{line[start:end]}{tail}", ((found.start() + shift, found.end() + shift),))
