"""What a chat template may use up: time, memory, output. Knows nothing of Jinja.

A template comes with a stranger's model file and is a program. It is stopped in the thread it runs in,
without a helper thread (which could not be killed) and without signals (which only the main thread gets):

* Time is checked by a trace function: Python calls it for every line of template code and for every function
  entered, so no loop and no recursion gets past it. It counts CPU time of the thread: a busy machine does not
  turn a good template into a bad one.
* One call into C code cannot be interrupted that way. So the operations that make big values out of small
  ones say beforehand how much they will make; `Meter.spend` refuses what is too much. Nothing spent is given
  back, which bounds memory too.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from types import FrameType
from typing import Any

SECONDS = 1.5
VALUE_BYTES = 8 << 20
TOTAL_BYTES = 128 << 20
OUTPUT_BYTES = 8 << 20

_NODE = 16
_INT_BITS = 10_000
_CONTAINERS: tuple[type[Collection[Any]], ...] = (
    dict,
    list,
    tuple,
    set,
    frozenset,
    type({}.keys()),
    type({}.values()),
    type({}.items()),
)
_TICKS = 16
_TOO_MUCH = float("inf")
_NUMBER = re.compile(r"\d{1,12}")
_STAR_WIDTH = re.compile(r"%[^a-zA-Z%]*\*")
_NESTED_FIELD = re.compile(r"\{[^{}]*\{")


class TemplateLimit(BaseException):
    """A template went over a limit. Not an `Exception`: a filter that catches those must not swallow it."""


class Meter:
    """What one rendering has left.

    Args:
        code: file name of the code objects whose every line is checked.
    """

    def __init__(self, code: str) -> None:
        self._code = code
        self._left = TOTAL_BYTES
        self._written: dict[int, tuple[object, int]] = {}  # by id; the object is kept so that ids stay unique
        self._end = time.thread_time() + SECONDS

    def tick(self) -> None:
        if time.thread_time() > self._end:
            raise TemplateLimit(f"takes longer than {SECONDS:g} s")

    def spend(self, size: float) -> None:
        """Takes ``size`` bytes from the budget.

        Raises:
            TemplateLimit: one value is too large, or all of them together, or time is up.
        """
        self.tick()
        if size > VALUE_BYTES:
            raise TemplateLimit(f"builds a value of more than {VALUE_BYTES >> 20} MB")
        self._left -= int(size)
        if self._left < 0:
            raise TemplateLimit(f"uses more than {TOTAL_BYTES >> 20} MB")

    def made(self, value: Any) -> Any:
        """Pays for a value that is already there, and returns it.

        Lists that hold one list many times are small in memory and huge once printed or compared, so a
        container must also be small enough written out.
        """
        if isinstance(value, str):
            self.spend(text_size(value))
        elif isinstance(value, _CONTAINERS):
            self.written_size(value)
            self.spend(shallow_size(value))
        return value

    def written_size(self, value: Any) -> int:
        """Bytes of a value written out: shared parts count as often as they stand. A template cannot change a
        container, so each is measured once.

        Raises:
            TemplateLimit: it is too large.
        """
        if isinstance(value, str):
            return text_size(value)
        if not isinstance(value, _CONTAINERS):
            return _NODE
        known = self._written.get(id(value))
        if known is not None:
            return known[1]
        size = _NODE
        for item in chain(value, value.values()) if isinstance(value, dict) else value:
            # Known items are looked up here, without a call: lists are mostly longer copies of earlier ones.
            known = self._written.get(id(item))
            size += known[1] if known is not None else self.written_size(item)
        if size > VALUE_BYTES:
            raise TemplateLimit(f"builds a value of more than {VALUE_BYTES >> 20} MB")
        self._written[id(value)] = (value, size)
        return size

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Checks the time in everything this thread runs inside the block. A debugger's or coverage tool's
        trace function rests meanwhile and is put back."""

        ticks = 0

        def trace(frame: FrameType, event: str, arg: object) -> Any:
            nonlocal ticks
            ticks += 1
            if ticks % _TICKS == 0:
                self.tick()
            return trace if frame.f_code.co_filename == self._code else None

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            yield
        finally:
            sys.settrace(before)


def text_size(text: str) -> int:
    """Bytes of a string in memory, at most."""
    return len(text) * (1 if text.isascii() else 4)


def shallow_size(value: Any) -> int:
    """Bytes of a value in memory, at most, without the containers inside it."""
    if isinstance(value, str):
        return text_size(value)
    size = _NODE
    if isinstance(value, _CONTAINERS):
        size += _NODE * len(value)
        for item in value:
            if isinstance(item, str):
                size += text_size(item)
    return size


def operator_size(operator: str, left: Any, right: Any) -> float:
    """Bytes that ``left operator right`` makes, at most; for ``+ * **``, and ``%`` of numbers."""
    if isinstance(left, int) and isinstance(right, int):
        return _integer_size(operator, left, right)
    if operator == "*":
        value, times = (right, left) if isinstance(left, int) else (left, right)
        return shallow_size(value) * max(times, 0) if isinstance(times, int) else _NODE
    if operator == "+":
        return shallow_size(left) + shallow_size(right)
    return _NODE


def _integer_size(operator: str, left: int, right: int) -> float:
    bits = left.bit_length() + right.bit_length()
    if operator == "**":
        bits = left.bit_length() * max(right, 0)
    return _NODE + bits // 8 if bits <= _INT_BITS else _TOO_MUCH


def percent_size(template: str, written: int) -> float:
    """Bytes of ``template % values``, at most; the values take ``written`` when written out."""
    if _STAR_WIDTH.search(template):
        return _TOO_MUCH
    return _filled_size(template, template.count("%"), written)


def format_size(template: str, written: int) -> float:
    """Bytes of ``template.format(values)``, at most; the values take ``written`` when written out."""
    if _NESTED_FIELD.search(template.replace("{{", "")):
        return _TOO_MUCH
    return _filled_size(template, template.count("{"), written)


def _filled_size(template: str, fields: int, written: int) -> float:
    widest = max(map(int, _NUMBER.findall(template)), default=0)
    return text_size(template) + fields * (widest + written)


def method_size(text: str, name: str, args: Sequence[Any]) -> float:
    """Bytes that the string method ``text.name(*args)`` makes, at most, where it can grow its text."""
    match name, args:
        case "center" | "ljust" | "rjust" | "zfill", [int(width), *_]:
            return max(text_size(text), width * 4)
        case "expandtabs", [int(width), *_]:
            return text_size(text) + text.count("\t") * max(width, 0)
        case "replace", [str(old), str(new), *_]:
            return text_size(text) + text.count(old) * text_size(new)
        case "join", [[*parts]]:
            return joined_size(text, parts)
        case _:
            return 0


def joined_size(separator: str, parts: Sequence[Any]) -> int:
    """Bytes of ``separator.join(parts)``."""
    return sum(text_size(part) for part in parts if isinstance(part, str)) + len(parts) * text_size(separator)
