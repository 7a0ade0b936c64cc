"""Sets of characters as sequences of sets of bytes.

A token of a byte-level vocabulary may end in the middle of a character, so grammars are matched byte by byte. A set of
bytes is an int with bit b set for byte b.
"""

from __future__ import annotations

from collections.abc import Iterable

LAST_CHAR = 0x10FFFF
Ranges = tuple[tuple[int, int], ...]

# Code points by the length of their UTF-8; surrogates have none.
_SPANS = ((0x0, 0x7F), (0x80, 0x7FF), (0x800, 0xD7FF), (0xE000, 0xFFFF), (0x10000, LAST_CHAR))


def byte_set(low: int, high: int) -> int:
    """The bytes from ``low`` to ``high``, both included."""
    return (1 << (high + 1)) - (1 << low)


def union(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """The same code points as ranges that ascend and do not touch."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], high))
        else:
            joined.append((low, high))
    return tuple(joined)


def complement(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """All other code points."""
    rest, start = [], 0
    for low, high in union(ranges):
        if start < low:
            rest.append((start, low - 1))
        start = high + 1
    if start <= LAST_CHAR:
        rest.append((start, LAST_CHAR))
    return tuple(rest)


def byte_sequences(ranges: Ranges) -> list[tuple[int, ...]]:
    """UTF-8 of the code points: sequences of byte sets, each of which stands for every choice of one byte a set."""
    ascii_bytes = 0
    found: list[tuple[int, ...]] = []
    for low, high in ranges:
        for first, last in _SPANS:
            start, end = max(low, first), min(high, last)
            if start > end:
                continue
            if last == 0x7F:
                ascii_bytes |= byte_set(start, end)
            else:
                found += _split(chr(start).encode(), chr(end).encode())
    return [(ascii_bytes,), *found] if ascii_bytes else found


def _split(low: bytes, high: bytes) -> list[tuple[int, ...]]:
    """The sequences from ``low`` to ``high``, which are of one length; their last bytes run from 0x80 to 0xBF."""
    if len(low) == 1:
        return [(byte_set(low[0], high[0]),)]
    if low[0] == high[0]:
        return [(byte_set(low[0], low[0]), *rest) for rest in _split(low[1:], high[1:])]
    least, most = b"\x80" * (len(low) - 1), b"\xbf" * (len(low) - 1)
    parts: list[tuple[int, ...]] = []
    first, last = low[0], high[0]
    if low[1:] != least:
        parts += [(byte_set(first, first), *rest) for rest in _split(low[1:], most)]
        first += 1
    tail: list[tuple[int, ...]] = []
    if high[1:] != most:
        tail = [(byte_set(last, last), *rest) for rest in _split(least, high[1:])]
        last -= 1
    if first <= last:
        parts.append((byte_set(first, last), *(byte_set(0x80, 0xBF) for _ in least)))
    return parts + tail
