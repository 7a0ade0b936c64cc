"""What a user looks for, as a query of the index of words; and the part of a text where it was found.

Parts are cut here and not by FTS5's ``snippet()``, whose time is the square of how often a word comes: one long answer
would hold up a search for ``the`` by seconds.
"""

from __future__ import annotations

import re
import unicodedata

from localspec.chat.store.entries import Snippet

#: More of a text is not looked for: a whole page was pasted, and SQLite has bounds of its own.
_MOST_CHARACTERS, _MOST_WORDS = 1000, 40
#: Characters of a snippet, and those before the first place that was found.
_LONGEST, _BEFORE = 120, 30
#: What the index takes for a letter of a word.
_LETTER = r"[^\W_]"


def query_of(text: str) -> str:
    """A query for messages with all words of ``text``; the last may be only the beginning of one. Every word is quoted:
    nothing in it is an operator. Empty where there is no word to look up."""
    quoted = ['"' + word.replace('"', '""') + '"' for word in _words(text)]
    return " ".join([*quoted[:-1], f"{quoted[-1]} *"]) if quoted else ""


def like(text: str) -> str:
    r"""A pattern for LIKE, with ``\`` as its escape, for texts with ``text`` somewhere; empty for white space."""
    wanted = re.sub(r"([\\%_])", r"\\\1", _plain(text).strip())
    return f"%{wanted}%" if wanted else ""


def places_of_words(text: str) -> re.Pattern[str]:
    """Finds the words of ``text`` in a folded text, as the index does."""
    words = [r"[\W_]+".join(re.findall(f"{_LETTER}+", folded(one))) for one in _words(text)]
    whole = [rf"(?<!{_LETTER}){word}(?!{_LETTER})" for word in words[:-1]]
    return re.compile("|".join([*whole, rf"(?<!{_LETTER}){words[-1]}"]))


def places_of(text: str) -> re.Pattern[str]:
    """Finds ``text`` as it is in a folded text."""
    return re.compile(r"\s+".join(map(re.escape, folded(_plain(text)).split())))


def snippet(text: str, places: re.Pattern[str]) -> Snippet:
    """The part of a text around the first place, in one line, with all places marked that are in it."""
    first = places.search(folded(text))
    begin, end = first.span() if first else (0, 0)
    start = max(0, begin - _BEFORE)
    end = max(start + _LONGEST, end)
    line = " ".join(text[start:end].split())
    shown = f"{'…' if start else ''}{line}{'…' if end < len(text) else ''}"
    return Snippet(shown, tuple(found.span() for found in places.finditer(folded(shown))))


def folded(text: str) -> str:
    """As many characters, without case and accents."""
    small = text.lower()
    if len(small) != len(text):
        small = "".join(char.lower()[0] for char in text)
    return re.sub(r"[^\x00-\x7f]", lambda found: unicodedata.normalize("NFD", found[0])[0], small)


def _words(text: str) -> list[str]:
    """Each once. What has no letter or digit is no word."""
    words = dict.fromkeys(word for word in _plain(text).split() if re.search(_LETTER, word))
    return list(words)[:_MOST_WORDS]


def _plain(text: str) -> str:
    """What can be looked for: no NUL, at which SQL ends a text, and no half of a character."""
    return re.sub("[\0\ud800-\udfff]", " ", text[:_MOST_CHARACTERS])
