"""Pieces of GBNF text that say JSON: literals, strings of characters, ranges of integers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from localspec.grammar.chars import Ranges, complement

#: Whitespace between the parts of a JSON text, as llama.cpp allows it: little, or a model may never stop.
SPACE = r'| " " | "\n" [ \t]{0,20}'

#: Rules of JSON, by name. Surrogates are not escaped one by one, so that a character is a character.
JSON_RULES = {
    "space": SPACE,
    "hex": "[0-9a-fA-F]",
    "escape": r'"\\" (["\\/bfnrt] | "u" ([0-9a-cA-CefEF] hex{3} | [dD] [0-7] hex{2}))',
    "char": r'[^"\\\x7F\x00-\x1F] | escape',
    "whole": '"0" | [1-9] [0-9]{0,15}',
    "string": r'"\"" char* "\"" space',
    "integer": '"-"? whole space',
    "positive": 'whole ("." [0-9]{1,16})? ([eE] [-+]? [0-9]{1,3})? space',
    "number": '"-"? positive',
    "boolean": '("true" | "false") space',
    "null": '"null" space',
    "member": 'string ":" space value',
    "object": '"{" space (member ("," space member)*)? "}" space',
    "array": '"[" space (value ("," space value)*)? "]" space',
    "value": "object | array | string | number | boolean | null",
}
_NEEDS = {
    "escape": ("hex",),
    "char": ("escape",),
    "string": ("char", "space"),
    "integer": ("whole", "space"),
    "positive": ("whole", "space"),
    "number": ("positive",),
    "boolean": ("space",),
    "null": ("space",),
    "member": ("string", "value"),
    "object": ("member", "space"),
    "array": ("value", "space"),
    "value": ("object", "array", "string", "number", "boolean", "null"),
}

_QUOTE, _BACKSLASH = ord('"'), ord("\\")
_PLAIN = complement([(0, 0x1F), (_QUOTE, _QUOTE), (_BACKSLASH, _BACKSLASH), (0x7F, 0x7F)])
_ESCAPED = {_QUOTE: '"', _BACKSLASH: "\\", 0x8: "b", 0x9: "t", 0xA: "n", 0xC: "f", 0xD: "r"}


def with_needs(names: Iterable[str]) -> set[str]:
    """These rules of JSON and all that they are made of."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _NEEDS.get(name, ())
    return found


def literal(text: str) -> str:
    """GBNF of exactly this text."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(char if char >= " " else f"\\x{ord(char):02X}" for char in escaped) + '"'


def json_literal(value: Any) -> str:
    """GBNF of a JSON value, written in the shortest way.

    Raises:
        ValueError: a number in it is not finite.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:  # half a character, which only an escape can spell
        text = json.dumps(value, separators=(",", ":"))
    return literal(text)


def char_class(ranges: Ranges) -> str:
    """GBNF of one of these characters."""
    return "[" + "".join(_code(low) + ("" if low == high else "-" + _code(high)) for low, high in ranges) + "]"


def _code(code: int) -> str:
    return f"\\U{code:08X}" if code > 0xFFFF else f"\\u{code:04X}" if code > 0xFF else f"\\x{code:02X}"


def chars_in_string(ranges: Ranges) -> str:
    """GBNF of one of these characters as it stands in a JSON string; control characters without a short escape are
    left out."""
    parts = [literal("\\" + short) for code, short in _ESCAPED.items() if any(a <= code <= b for a, b in ranges)]
    plain = intersection(ranges, _PLAIN)
    if plain:
        parts.append(char_class(plain))
    return "(" + " | ".join(parts) + ")" if parts else "[]"


def intersection(one: Ranges, other: Ranges) -> Ranges:
    return complement((*complement(one), *complement(other)))


def without(ranges: Ranges, codes: Iterable[int]) -> Ranges:
    return intersection(ranges, complement((code, code) for code in codes))


def plain_chars(*, but: Iterable[int] = ()) -> str:
    """GBNF of one character that stands for itself in a JSON string, and is none of ``but``."""
    return char_class(without(_PLAIN, but))


def integers(low: int | None, high: int | None, most: int) -> str:
    """GBNF of the integers from ``low`` to ``high`` (``None``: no bound), of at most ``most`` digits. ``low <=
    high``."""
    limit = 10**most - 1
    low = -limit if low is None else low
    high = limit if high is None else high
    parts = []
    if low < 0:
        parts.append('"-" (' + " | ".join(_naturals(max(1, -high), -low)) + ")")
    if high >= 0:
        parts += _naturals(max(low, 0), high)
    return "(" + " | ".join(parts) + ")"


def _naturals(low: int, high: int) -> list[str]:
    parts = []
    for digits in range(len(str(low)), len(str(high)) + 1):
        first = max(low, 10 ** (digits - 1) if digits > 1 else 0)
        last = min(high, 10**digits - 1)
        parts += _of_one_length(str(first), str(last))
    return parts


def _of_one_length(low: str, high: str) -> list[str]:
    """The decimal numbers from ``low`` to ``high``, as sequences of classes of digits."""
    if not low:
        return [""]
    if low[0] == high[0]:
        return [f'"{low[0]}" {rest}'.strip() for rest in _of_one_length(low[1:], high[1:])]
    n = len(low) - 1
    any_rest = f" [0-9]{{{n}}}" if n else ""
    first, last = int(low[0]), int(high[0])
    before, after = [], []
    if n and low[1:] != "0" * n:
        before = [f'"{first}" {rest}' for rest in _of_one_length(low[1:], "9" * n)]
        first += 1
    if n and high[1:] != "9" * n:
        after = [f'"{last}" {rest}' for rest in _of_one_length("0" * n, high[1:])]
        last -= 1
    middle = [f"[{first}-{last}]{any_rest}"] if first <= last else []
    return before + middle + after
