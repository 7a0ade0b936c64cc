"""``@file`` in a message: the files that it names go along with it."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from threading import Lock

from localspec.errors import LocalspecError, UsageError
from localspec.hub.sizes import human
from localspec.talk.attach import Attachment, parted, read_file, with_attachments
from localspec.text.printable import one_line

#: At the start of a word; a name with blanks stands in quotes.
_MENTION = re.compile(r'(?<!\S)@(?:"(?P<quoted>[^"\n]+)"|(?P<bare>[^\s"`]\S*))')
#: Nothing is mentioned in code: between fences, and between backticks of one line.
_CODE = re.compile(
    r"^ {0,3}(?P<fence>`{3,}|~{3,})[^\n]*(?:\n.*?(?:^ {0,3}(?P=fence)[`~]*[ \t]*$)|.*\Z)"
    r"|(?<!`)(?P<ticks>`+)(?!`)[^\n]+?(?<!`)(?P=ticks)(?!`)",
    re.MULTILINE | re.DOTALL,
)
#: What may follow a name and be no part of it.
_PUNCTUATION = ".,;:!?)]}'\""
#: A word that begins so is meant as a path, whether there is such a file or not.
_PLAINLY = ("/", "./", "../", "~/")
#: A bare word that looks like a file, not like somebody's name.
_LIKE_A_FILE = re.compile(r"/|\.[^\W\d_]")
AS_TYPED = "In backticks it is no file."


def mentioned(text: str) -> tuple[str, ...]:
    """Names of the files that a text mentions, each once, in order. A bare word is a mention if there is such a file;
    one in quotes, or one that begins as a path does, is one in any case."""
    found: dict[str, None] = {}
    for spellings, plainly in _words(text):
        there = _there(spellings)
        if there is not None or plainly:
            found[there or spellings[-1]] = None
    return tuple(found)


def not_there(text: str) -> list[str]:
    """A line for each bare word of a text that looks like a file and names none."""
    bare = (spellings for spellings, plainly in _words(text) if not plainly)
    missing = (one[-1] for one in bare if _LIKE_A_FILE.search(one[-1]) and _there(one) is None)
    return [f"@{one_line(name)}: no such file, it is sent as typed" for name in dict.fromkeys(missing)]


def _there(spellings: list[str]) -> str | None:
    """The first that names a file."""
    return next((name for name in spellings if os.path.lexists(os.path.expanduser(name))), None)


def read_mentioned(text: str, n_ctx: int) -> list[tuple[str, str]]:
    """Names as shown and texts of the files that a text mentions.

    Raises:
        UsageError: as `read_file`.
    """
    return [_read(name, n_ctx) for name in mentioned(text)]


def as_typed(message: str) -> str:
    """A message as it was before the files that it mentions joined it; other files stay."""
    files, words = parted(message)
    named = {one_line(name) for spellings, _ in _words(words) for name in spellings}
    return with_attachments([one for one in files if one.name not in named], words)


def _words(text: str) -> Iterator[tuple[list[str], bool]]:
    """Everything that may be a mention: how it can be read, the longest first; and whether it plainly is one."""
    if "@" not in text:
        return
    for found in _MENTION.finditer(_CODE.sub(lambda code: "`" * len(code[0]), text)):
        if found["quoted"]:
            yield [found["quoted"]], True
            continue
        word = found["bare"]
        spellings = [word]
        while len(word) > 1 and word[-1] in _PUNCTUATION:
            word = word[:-1]
            spellings.append(word)
        yield spellings, word.startswith(_PLAINLY)


def _read(name: str, n_ctx: int) -> tuple[str, str]:
    try:
        return read_file(name, n_ctx)
    except UsageError as error:
        raise UsageError(f"@{error.message}", hint=f"{error.hint} {AS_TYPED}") from None


@dataclass(frozen=True, slots=True)
class Cost:
    """What a mention adds to a message: tokens, or bytes while there is nothing to count tokens with, or what is wrong
    with it."""

    name: str
    tokens: int | None = None
    size: int = 0
    trouble: str = ""

    def line(self, n_ctx: int | None) -> str:
        if self.trouble:
            return self.trouble
        name = f"@{one_line(self.name)}"
        if self.tokens is None:
            return f"{name}: {human(self.size)} (tokens are counted when a model is loaded)"
        too_many = n_ctx is not None and self.tokens >= n_ctx
        return f"{name}: {self.tokens:,} tokens" + (f", and the context has {n_ctx:,}" if too_many else "")


#: A file as it was when it was counted, and what it was counted with.
_Stamp = tuple[str, int, int, object]


class Scales:
    """Weighs what a message mentions, and remembers what it weighed; for any thread, one after the other.

    Args:
        count: tokens of a text; raises a `LocalspecError` where that cannot be said.
        engine: what they are counted with: its name and the size of its context; ``None``: nothing is loaded.
    """

    def __init__(self, count: Callable[[str], int], engine: Callable[[], tuple[str, int] | None]) -> None:
        self._count = count
        self._engine = engine
        self._known: dict[_Stamp, int] = {}
        self._lock = Lock()

    def lines(self, text: str) -> list[str]:
        """A line for each mention, one for all where there are several, and one for each word that names no file."""
        with self._lock:
            engine = self._engine()
            n_ctx = None if engine is None else engine[1]
            costs = [self._cost(name, engine) for name in mentioned(text)]
        return [*(one.line(n_ctx) for one in costs), *_together(costs, n_ctx), *not_there(text)]

    def _cost(self, name: str, engine: tuple[str, int] | None) -> Cost:
        try:
            about = os.stat(os.path.expanduser(name))
            if engine is None and stat.S_ISREG(about.st_mode):
                return Cost(name, size=about.st_size)
            stamp = (name, about.st_mtime_ns, about.st_size, engine)
            if stamp not in self._known:
                self._known[stamp] = self._counted(*_read(name, 0 if engine is None else engine[1]))
            return Cost(name, self._known[stamp], about.st_size)
        except UsageError as error:
            return Cost(name, trouble=f"{error.message}. {error.hint}")
        except (OSError, ValueError) as error:
            return Cost(name, trouble=f"@{one_line(name)} cannot be read: {getattr(error, 'strerror', None) or error}")
        except LocalspecError:  # the engine has just gone
            return Cost(name, size=about.st_size)

    def _counted(self, name: str, text: str) -> int:
        try:
            return self._count(Attachment(name, text, 0).block())
        except UsageError as error:
            raise UsageError(f"@{name}: {error.message}", hint="Attach a part of it, or raise -c.") from None


def _together(costs: Iterable[Cost], n_ctx: int | None) -> list[str]:
    counted = [one.tokens for one in costs if one.tokens is not None]
    if len(counted) < 2 or n_ctx is None:
        return []
    return [f"together {sum(counted):,} tokens of a context of {n_ctx:,}"]
