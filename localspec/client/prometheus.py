"""Prometheus' text format, as servers write it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(,|$)')
_LINE = re.compile(rf'({_NAME})\s*(?:\{{((?:[^"}}]|"(?:[^"\\]|\\.)*")*)\}})?\s+(\S+)(?:\s+-?\d+)?\s*')
_ESCAPED = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n"}


@dataclass(frozen=True, slots=True)
class Sample:
    """One value; ``labels`` in the order of the line."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float

    def label(self, name: str) -> str | None:
        return dict(self.labels).get(name)


def parse(text: str) -> Iterator[Sample]:
    """The samples of a page; comments and lines that are none are left out."""
    for line in text.split("\n"):
        if (sample := _sample(line.strip())) is not None:
            yield sample


def _sample(line: str) -> Sample | None:
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    name, inside, number = match.groups()
    labels = _labels(inside or "")
    try:
        return None if labels is None else Sample(name, labels, float(number))
    except ValueError:
        return None


def _labels(text: str) -> tuple[tuple[str, str], ...] | None:
    """``None``: they cannot be read. A comma may follow the last one."""
    found, at = [], 0
    while text[at:].strip():
        match = _LABEL.match(text, at)
        if match is None:
            return None
        found.append((match[1], _ESCAPED.sub(lambda one: _ESCAPES.get(one[1], one[1]), match[2])))
        at = match.end()
    return tuple(found)
