"""``pattern`` of a JSON schema, to GBNF of the JSON string's inside."""

from __future__ import annotations

from typing import NoReturn

from localspec.errors import UsageError
from localspec.grammar.chars import Ranges, complement, union
from localspec.grammar.texts import chars_in_string

_DIGITS: Ranges = ((ord("0"), ord("9")),)
_WORD = union([*_DIGITS, (ord("A"), ord("Z")), (ord("_"), ord("_")), (ord("a"), ord("z"))])
_BLANK = union([(0x9, 0xD), (0x20, 0x20), (0xA0, 0xA0), (0x2028, 0x2029), (0xFEFF, 0xFEFF)])
_SETS = {"d": _DIGITS, "w": _WORD, "s": _BLANK}
_CONTROL = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "0": "\0"}
_LINE_ENDS = complement([(0xA, 0xA), (0xD, 0xD), (0x2028, 0x2029)])
_MAX_NESTING = 50


def pattern(text: str) -> str:
    """GBNF of what the regular expression allows between the quotes of a JSON string. Known are characters, classes,
    groups, ``|``, ``* + ? {m,n}``, and ``^`` and ``$`` at the ends, which must be there: what could stand around the
    match is no use to anyone.

    Raises:
        UsageError: it is not such an expression.
    """
    if not text.startswith("^") or not text.endswith("$") or text.endswith("\\$"):
        raise UsageError(
            f"the schema's pattern {text!r} does not say all of the text", hint="Begin it with ^ and end it with $."
        )
    return _Pattern(text).gbnf()


class _Pattern:
    def __init__(self, text: str) -> None:
        self._whole = text
        self._text = text[1:-1]
        self._at = 0
        self._nesting = 0

    def gbnf(self) -> str:
        found = self._alternatives()
        if self._at < len(self._text):
            self._fail("a closing parenthesis has no opening one")
        return f"({found})"

    def _alternatives(self) -> str:
        found = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            found.append(self._sequence())
        return " | ".join(found)

    def _sequence(self) -> str:
        items = []
        while self._peek() not in ("", "|", ")"):
            items.append(self._item() + self._repeats())
        return " ".join(items)

    def _item(self) -> str:
        char = self._next()
        if char == "(":
            return self._group()
        if char == "[":
            return chars_in_string(self._class())
        if char == ".":
            return chars_in_string(_LINE_ENDS)
        if char == "\\":
            return chars_in_string(self._escape())
        if char in "^$":
            self._fail(f"{char} in the middle is not supported")
        if char in "*+?{":
            self._fail(f"{char} repeats nothing")
        return chars_in_string(_one(char))

    def _group(self) -> str:
        self._nesting += 1
        if self._nesting > _MAX_NESTING:
            self._fail(f"more than {_MAX_NESTING} parentheses are open")
        if self._peek() == "?":
            if self._text[self._at : self._at + 2] != "?:":
                self._fail("groups that look around or have names are not supported")
            self._at += 2
        found = self._alternatives()
        if self._peek() != ")":
            self._fail("a parenthesis is never closed")
        self._at += 1
        self._nesting -= 1
        return f"({found})"

    def _repeats(self) -> str:
        char = self._peek()
        if not char or char not in "*+?{":
            return ""
        self._at += 1
        if char == "{":
            end = self._text.find("}", self._at)
            inside = self._text[self._at : end] if end >= 0 else ""
            least, comma, most = inside.partition(",")
            if not least.isdecimal() or not inside.isascii() or (most and not most.isdecimal()):
                self._fail("a repetition cannot be read")
            self._at = end + 1
            char = "{" + least + comma + most + "}"
        if self._peek() in ("?", "+") and self._peek():
            self._fail("lazy and possessive repetitions are not supported")
        return char

    def _class(self) -> Ranges:
        negated = self._peek() == "^"
        self._at += negated
        ranges: list[tuple[int, int]] = []
        while self._peek() != "]":
            low = self._member()
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", "") and len(low) == 1:
                self._at += 1
                high = self._member()
                if len(high) != 1 or low[0][0] != low[0][1] or high[0][1] < low[0][0]:
                    self._fail("a range of characters cannot be read")
                ranges.append((low[0][0], high[0][1]))
            else:
                ranges += low
        self._at += 1
        return complement(ranges) if negated else union(ranges)

    def _member(self) -> Ranges:
        char = self._next()
        return self._escape() if char == "\\" else _one(char)

    def _escape(self) -> Ranges:
        char = self._next()
        if char.lower() in _SETS:
            known = _SETS[char.lower()]
            return known if char.islower() else complement(known)
        if char in _CONTROL:
            return _one(_CONTROL[char])
        if char in "xu":
            n = 2 if char == "x" else 4
            digits = self._text[self._at : self._at + n]
            self._at += n
            try:
                return _one(chr(int(digits, 16)))
            except ValueError:
                self._fail(f"\\{char} needs {n} hexadecimal digits")
        if char.isalnum():
            self._fail(f"\\{char} is not supported")
        return _one(char)

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _next(self) -> str:
        char = self._peek()
        if not char:
            self._fail("it ends too early")
        self._at += 1
        return char

    def _fail(self, what: str) -> NoReturn:
        raise UsageError(
            f"the schema's pattern {self._whole!r}: {what}", hint="Write it more simply, or leave pattern out."
        )


def _one(char: str) -> Ranges:
    return ((ord(char), ord(char)),)
