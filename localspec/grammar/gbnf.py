"""GBNF, the grammar notation of llama.cpp, to rules over bytes.

All of the notation but tokens (``<think>``, ``<[1000]>``), which stand for no text. Size and nesting are bounded, since
grammars come from outside.
"""

from __future__ import annotations

import re
from typing import NoReturn

from localspec.errors import UsageError
from localspec.grammar.chars import LAST_CHAR, Ranges, byte_sequences, byte_set, complement, union
from localspec.grammar.rules import Alternative, Rules, checked

MAX_TEXT = 1 << 20  # characters
MAX_SYMBOLS = 200_000  # after repetitions are written out
MAX_REPEATS = 10_000
MAX_NESTING = 200

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_REPEATS = re.compile(r"\{[ \t]*(\d{1,9})?[ \t]*(?:(,)[ \t]*(\d{1,9})?[ \t]*)?\}")
_BLANKS = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_HEX = {"x": 2, "u": 4, "U": 8}
_PLAIN = {"n": "\n", "r": "\r", "t": "\t"}


def parse(text: str) -> Rules:
    """The rules of a grammar, checked.

    Raises:
        UsageError: a mistake, with its line and column; or a grammar that allows nothing, begins with itself or is too
            large.
    """
    if len(text) > MAX_TEXT:
        raise UsageError(f"the grammar has {len(text)} characters", hint=f"At most {MAX_TEXT} are read.")
    return checked(_Parser(text).rules())


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._nesting = 0
        self._symbols = 0
        self._names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._alternatives: list[tuple[Alternative, ...] | None] = []
        self._used_at: list[int] = []  # where a rule is first named
        self._sets: dict[int, int] = {}
        self._classes: dict[Ranges, Alternative] = {}

    def rules(self) -> Rules:
        self._skip(_SPACE)
        while self._at < len(self._text):
            self._rule()
            self._skip(_SPACE)
        if self._alternatives and "root" in self._numbers:
            for rule, alternatives in enumerate(self._alternatives):
                if alternatives is None:
                    self._at = self._used_at[rule]
                    self._fail(f"the rule {self._names[rule]} is not defined", hint="Write it, or mend the name.")
            found = tuple(alternatives or () for alternatives in self._alternatives)
            return Rules(found, tuple(self._names), tuple(self._sets), self._numbers["root"])
        raise UsageError("the grammar has no rule root", hint="Begin it with root ::= …")

    # -- rules

    def _rule(self) -> None:
        start = self._at
        name = self._name()
        self._skip(_BLANKS)
        if not self._text.startswith("::=", self._at):
            self._fail(f"::= is missing after {name}", hint="A rule is NAME ::= what it stands for.")
        self._at += 3
        self._skip(_SPACE)
        rule = self._number(name, start)
        alternatives = self._alternates(nested=False)
        if self._alternatives[rule] is not None:
            self._at = start
            self._fail(f"the rule {name} is defined twice", hint="Join the two with |.")
        self._alternatives[rule] = alternatives
        if self._at < len(self._text) and self._text[self._at] not in "\r\n":
            self._fail(f"{self._text[self._at]!r} is not expected here", hint="A rule ends with its line.")

    def _number(self, name: str, at: int) -> int:
        rule = self._numbers.get(name)
        if rule is None:
            rule = self._numbers[name] = self._new(name, at)
        return rule

    def _new(self, name: str, at: int, alternatives: tuple[Alternative, ...] | None = None) -> int:
        self._names.append(name)
        self._used_at.append(at)
        self._alternatives.append(alternatives)
        self._count(sum(1 + len(one) for one in alternatives or ()))
        return len(self._names) - 1

    def _count(self, symbols: int) -> None:
        self._symbols += symbols
        if self._symbols > MAX_SYMBOLS:
            self._fail(f"the grammar grows beyond {MAX_SYMBOLS} symbols", hint="Repeat less: {m,n} is written out.")

    def _alternates(self, *, nested: bool) -> tuple[Alternative, ...]:
        found = [self._sequence(nested)]
        while self._text.startswith("|", self._at):
            self._at += 1
            self._skip(_SPACE)
            found.append(self._sequence(nested))
        return tuple(dict.fromkeys(found))

    def _sequence(self, nested: bool) -> Alternative:
        space = _SPACE if nested else _BLANKS
        symbols: list[int] = []
        while self._at < len(self._text):
            item = self._item()
            if item is None:
                break
            self._skip(space)
            start = self._at
            least, most = self._repeats()
            symbols += self._repeated(item, least, most, start)
            self._skip(space)
        self._count(len(symbols) + 1)
        return tuple(symbols)

    def _item(self) -> Alternative | None:
        char = self._text[self._at]
        if char == '"':
            return self._literal()
        if char == "[":
            return self._class()
        if char == ".":
            self._at += 1
            return self._char_class(((0, LAST_CHAR),))
        if char == "(":
            return self._group()
        if char in "<!":
            self._fail("tokens stand for no text and cannot be matched", hint='Write the text in quotes: "…".')
        if _NAME.match(char):
            start = self._at
            return (self._number(self._name(), start),)
        return None

    def _group(self) -> Alternative:
        start = self._at
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            self._fail(f"more than {MAX_NESTING} parentheses are open", hint="Name the inner parts.")
        self._at += 1
        self._skip(_SPACE)
        alternatives = self._alternates(nested=True)
        if not self._text.startswith(")", self._at):
            self._at = start
            self._fail("this parenthesis is never closed", hint="Add ).")
        self._at += 1
        self._nesting -= 1
        return alternatives[0] if len(alternatives) == 1 else (self._new("(…)", start, alternatives),)

    # -- repetition

    def _repeats(self) -> tuple[int, int | None]:
        char = self._text[self._at : self._at + 1]
        if char and char in "*+?":
            self._at += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
        if char != "{":
            return 1, 1
        match = _REPEATS.match(self._text, self._at)
        if match is None or (match[1] is None and match[3] is None):
            self._fail("this repetition cannot be read", hint="Write {n}, {n,} or {m,n}.")
        least = int(match[1] or 0)
        most = int(match[3]) if match[3] else None if match[2] else least
        if max(least, most or 0) > MAX_REPEATS:
            self._fail(f"more than {MAX_REPEATS} repetitions", hint="Repeat less, or without a limit: {n,}.")
        if most is not None and most < least:
            self._fail("the repetition ends before it begins", hint="Write the smaller number first.")
        self._at = match.end()
        return least, most

    def _repeated(self, item: Alternative, least: int, most: int | None, at: int) -> Alternative:
        if (least, most) == (1, 1):
            return item
        self._count(len(item) * least)
        rest: Alternative = ()
        if most is None:
            rest = (self._new("(…)*", at),)
            self._alternatives[rest[0]] = ((*item, *rest), ())
        for _ in range((most or least) - least):
            rest = (self._new("(…)?", at, ((*item, *rest), ())),)
        return item * least + rest

    # -- characters

    def _literal(self) -> Alternative:
        start = self._at
        self._at += 1
        encoded = bytearray()
        while not self._text.startswith('"', self._at):
            encoded += self._encoded(self._char(start, "quote"))
        self._at += 1
        return tuple(self._set(byte_set(byte, byte)) for byte in encoded)

    def _encoded(self, code: int) -> bytes:
        if 0xD800 <= code <= 0xDFFF or code > LAST_CHAR:
            self._fail(f"U+{code:04X} is no character", hint="Give a Unicode character that is not a surrogate.")
        return chr(code).encode()

    def _class(self) -> Alternative:
        start = self._at
        self._at += 1
        negated = self._text.startswith("^", self._at)
        self._at += negated
        ranges = []
        while not self._text.startswith("]", self._at):
            low = high = self._char(start, "bracket")
            if self._text.startswith("-", self._at) and not self._text.startswith("]", self._at + 1):
                self._at += 1
                high = self._char(start, "bracket")
            if high < low:
                self._fail("a range of characters ends before it begins", hint="Write the smaller one first.")
            ranges.append((low, min(high, LAST_CHAR)))
        self._at += 1
        return self._char_class(complement(ranges) if negated else union(ranges))

    def _char_class(self, ranges: Ranges) -> Alternative:
        known = self._classes.get(ranges)
        if known is None:
            found = [tuple(self._set(part) for part in parts) for parts in byte_sequences(ranges)]
            known = found[0] if len(found) == 1 else (self._new("[…]", self._at, tuple(found)),)
            self._classes[ranges] = known
        return known

    def _char(self, start: int, what: str) -> int:
        if self._at >= len(self._text):
            self._at = start
            self._fail(f"this {what} is never closed", hint="Close it on the same line.")
        char = self._text[self._at]
        self._at += 1
        if char != "\\":
            return ord(char)
        kind = self._text[self._at : self._at + 1]
        self._at += 1
        if kind in _HEX and kind:
            digits = self._text[self._at : self._at + _HEX[kind]]
            if not re.fullmatch(rf"[0-9A-Fa-f]{{{_HEX[kind]}}}", digits):
                self._fail(f"\\{kind} needs {_HEX[kind]} hexadecimal digits", hint="Write leading zeros.")
            self._at += _HEX[kind]
            return int(digits, 16)
        if kind in _PLAIN and kind:
            return ord(_PLAIN[kind])
        if kind and kind in '"[]\\-^':
            return ord(kind)
        self._fail(f"\\{kind} stands for no character", hint=r"Known are \n \r \t \\ \" \[ \] \- \^ \x \u \U.")

    def _set(self, bytes_: int) -> int:
        return ~self._sets.setdefault(bytes_, len(self._sets))

    # -- reading

    def _name(self) -> str:
        match = _NAME.match(self._text, self._at)
        if match is None:
            self._fail(f"{self._text[self._at : self._at + 1]!r} is not expected here", hint="Rules begin with a name.")
        self._at = match.end()
        return match[0]

    def _skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self._text, self._at)
        assert match is not None
        self._at = match.end()

    def _fail(self, what: str, *, hint: str) -> NoReturn:
        before = self._text[: self._at]
        line, column = before.count("\n") + 1, self._at - (before.rfind("\n") + 1) + 1
        raise UsageError(f"the grammar, line {line}, column {column}: {what}", hint=hint)
