"""Thinking and answer, told apart while the text streams.

Models that think first wrap it in tags that are plain text: ``<think>…</think>``. A tag counts at the start of an
answer, or right after the end of another thinking part: further on it is something the model writes about. White
space next to a tag belongs to the tag.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

Kind = Literal["answer", "thinking"]


class Piece(NamedTuple):
    """Some text, and what it is."""

    kind: Kind
    text: str


class Tags(NamedTuple):
    """What opens and what closes thinking. ``answer`` is what opens an answer without thinking, if anything does."""

    open: str
    close: str
    answer: str = ""


#: In use by the model families at hand.
KNOWN_TAGS = (
    Tags("<think>", "</think>"),
    Tags("<thinking>", "</thinking>"),
    Tags("<thought>", "</thought>"),
    Tags("<reasoning>", "</reasoning>"),
    Tags("<seed:think>", "</seed:think>"),
    Tags("[THINK]", "[/THINK]"),
    Tags("◁think▷", "◁/think▷"),
    Tags("<|channel>thought", "<channel|>"),
    Tags("<|START_THINKING|>", "<|END_THINKING|>", "<|START_RESPONSE|>"),
    Tags(
        "<|channel|>analysis<|message|>",
        "<|end|><|start|>assistant<|channel|>final<|message|>",
        "<|channel|>final<|message|>",
    ),
)


def named_tags(template: str) -> tuple[Tags, ...]:
    """Those of the known tags that a chat template names: what its model uses."""
    return tuple(tags for tags in KNOWN_TAGS if tags.open in template or tags.close in template)


def opened_by(prompt: str, tags: Sequence[Tags]) -> Tags | None:
    """The tags that the prompt's last word opens: such an answer begins in the middle of thinking."""
    end = prompt.rstrip()
    return next((pair for pair in tags if end.endswith(pair.open)), None)


class ThinkingSplitter:
    """Cuts a stream of text into pieces of thinking and answer.

    Joined by kind, the pieces are the same however the stream is cut; no tag, and no part of one, is ever in them.

    Args:
        tags: non-empty texts; where several match, the longest counts.
        inside: the tags that the prompt has opened already; a model that opens them once more is forgiven.
    """

    def __init__(self, tags: Sequence[Tags] = KNOWN_TAGS, *, inside: Tags | None = None) -> None:
        marks: dict[str, Tags | None] = {pair.open: pair for pair in tags}
        marks.update({pair.answer: None for pair in tags if pair.answer})
        self._marks = dict(sorted(marks.items(), key=lambda item: len(item[0]), reverse=True))
        self._opened = inside
        self._inside: Tags | None = None
        self._answering = False
        self._bare = inside is not None  # a tag is right behind us: white space belongs to it
        self._held = ""

    def push(self, text: str) -> list[Piece]:
        """The pieces that are now certain; the rest waits for what comes."""
        self._held += text
        pieces: list[Piece] = []
        while self._advance(pieces):
            pass
        return pieces

    def finish(self) -> list[Piece]:
        """No more text: what was held back is no tag after all."""
        held, self._held = self._held, ""
        if self._bare:
            held = held.lstrip()
        return [Piece("answer" if self._inside is None and self._opened is None else "thinking", held)] if held else []

    def _advance(self, pieces: list[Piece]) -> bool:
        """One step; returns whether there may be another."""
        if self._answering:
            return self._emit(pieces, "answer", len(self._held))
        return self._open(pieces) if self._inside is None else self._close(pieces, self._inside)

    def _open(self, pieces: list[Piece]) -> bool:
        """At a place where a tag may stand."""
        text = self._held.lstrip()
        if any(mark != text and mark.startswith(text) for mark in self._marks):
            return False
        mark = next((mark for mark in self._marks if text.startswith(mark)), None)
        self._inside = self._opened if mark is None else self._marks[mark]
        self._opened = None
        self._answering = self._inside is None
        if mark is not None:
            self._held = text[len(mark) :]
            self._bare = True
        return True

    def _close(self, pieces: list[Piece], tags: Tags) -> bool:
        """Inside thinking."""
        if self._bare:
            self._held = self._held.lstrip()
        at = self._held.find(tags.close)
        if at < 0:
            return self._emit(pieces, "thinking", len(self._held[: _safe(self._held, tags.close)].rstrip()))
        rest = self._held[at + len(tags.close) :]
        self._emit(pieces, "thinking", len(self._held[:at].rstrip()))
        self._held = rest
        self._inside = None
        self._bare = True
        return True

    def _emit(self, pieces: list[Piece], kind: Kind, end: int) -> bool:
        """Lets go of the first ``end`` characters held. There is never another step after it."""
        text, self._held = self._held[:end], self._held[end:]
        if self._bare:
            text = text.lstrip()
        if text:
            self._bare = False
            pieces.append(Piece(kind, text))
        return False


def _safe(text: str, tag: str) -> int:
    """How much of ``text`` cannot be the beginning of ``tag``."""
    longest = min(len(tag) - 1, len(text))
    return next((len(text) - n for n in range(longest, 0, -1) if text.endswith(tag[:n])), len(text))
