"""The terminal, which may send anything and go away at any time."""

from __future__ import annotations

import os
import re
import selectors
import threading
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import TextIOWrapper
from typing import Any, Protocol, cast

from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Key, Paste
from textual.message import Message

_START, _END = "\x1b[200~", "\x1b[201~"
#: Alt and a character, perhaps behind an escape by itself; none of those that begin a longer sequence.
_ALT = re.compile("(\x1b?)\x1b([^\\x00-\\x1f\\x7f\\[\\]OPX^_])")
_PATIENCE = 0.1  # seconds after which an escape is one, and no longer the start of a key
_KEYS = (Key, Paste)


@dataclass(frozen=True, slots=True)
class Ahead:
    """What was typed before the screen was there.

    Attributes:
        text: what stands in the editor then.
        sends: whether Enter followed it.
        line: how the terminal's line was set before somebody saw to it that keys wait (as `termios.tcgetattr` has it).
    """

    text: str
    sends: bool
    line: list[Any]


class Typed(Protocol):
    """An app, as far as keys are concerned.

    Attributes:
        takes_keys: set when there is something that they can be typed into.
    """

    ahead: Ahead | None
    takes_keys: threading.Event


class TerminalDriver(LinuxDriver):
    """Textual's, but bytes that are no text do not end the program, and neither does a terminal that is gone: a signal
    says so, and there is something to be kept before the end. Keys are not lost that come before the first frame."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._file = cast(TextIOWrapper, _Lasting(cast(TextIOWrapper, self._file)))
        typed = cast(Typed, self._app)
        self._takes_keys = typed.takes_keys
        self._ahead = typed.ahead
        self._waiting = [] if typed.ahead is None else _at_once(typed.ahead)

    def start_application_mode(self) -> None:
        super().start_application_mode()  # type: ignore[no-untyped-call]
        if self._ahead is not None:
            self.attrs_before = self._ahead.line  # whoever gets the terminal gets it as it was

    def run_input_thread(self) -> None:
        parser, pastes = XTermParser(self._debug), PasteSplitter()
        decode = getincrementaldecoder("utf-8")("replace").decode
        with selectors.DefaultSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                parts = pastes.rest()
                messages = list(parser.tick())
                if selector.select(_PATIENCE):
                    data = self._read()
                    if not data:
                        return
                    parts = pastes.feed(decode(data))
                for part in parts:
                    messages += [part] if isinstance(part, Paste) else keys_in(parser, part)
                self._pass_on(messages)

    def _pass_on(self, messages: Sequence[Message]) -> None:
        """Keys wait until they are taken."""
        takes = self._takes_keys.is_set()
        came, self._waiting = [*self._waiting, *messages], []
        for message in came:
            if takes or not isinstance(message, _KEYS):
                self.process_message(message)
            else:
                self._waiting.append(message)

    def _read(self) -> bytes:
        """What was typed; nothing: the terminal is gone."""
        try:
            return os.read(self.fileno, 65536)
        except OSError:
            return b""


def _at_once(ahead: Ahead) -> list[Message]:
    """Put in as a paste is: key by key, a long text takes its time."""
    text: list[Message] = [Paste(ahead.text)] if ahead.text else []
    return [*text, Key("enter", "\r")] if ahead.sends else text


def keys_in(parser: XTermParser, text: str) -> Iterator[Message]:
    """What was typed, as keys. Textual's parser takes alt and a letter for one key only if nothing follows for a
    while: keys that repeat, or are typed on at once, would come apart."""
    at = 0
    for match in _ALT.finditer(text):
        escape, letter = match.groups()
        if f"\x1b{letter}" not in ANSI_SEQUENCES_KEYS:
            yield from _fed(parser, text[at : match.start()])
            if escape:
                yield Key("escape", escape)
            yield from parser._sequence_to_key_events(letter, alt=True)
            at = match.end()
    yield from _fed(parser, text[at:])


def _fed(parser: XTermParser, text: str) -> Iterable[Message]:
    return parser.feed(text) if text else ()  # nothing would be the end of all


class PasteSplitter:
    """Parts what is pasted from what is typed. Textual's parser looks for keys in pastes too, so that the escapes of a
    log that is pasted would tear it apart, and might do anything."""

    def __init__(self) -> None:
        self._pasted: list[str] | None = None
        self._held = ""  # perhaps the beginning of a mark

    def feed(self, text: str) -> Iterator[str | Paste]:
        """What was typed, in pieces, and what was pasted, each in one."""
        text, self._held = self._held + text, ""
        while text:
            mark = _START if self._pasted is None else _END
            before, found, text = text.partition(mark)
            if not found:
                before, self._held = _parted(before, mark, least=2 if self._pasted is None else 1)
            if self._pasted is not None:
                self._pasted.append(before)
            elif before:
                yield before
            if found:
                pasted, self._pasted = self._pasted, [] if self._pasted is None else None
                if pasted is not None:
                    yield Paste("".join(pasted))

    def rest(self) -> Iterator[str | Paste]:
        """Nothing follows for now: what looked like a mark was typed."""
        if self._pasted is None and self._held:
            held, self._held = self._held, ""
            yield held


def _parted(text: str, mark: str, *, least: int) -> tuple[str, str]:
    """A text and what at its end may be the beginning of a mark. An escape by itself is a key: ``least`` is 2 then."""
    for size in range(min(len(mark) - 1, len(text)), least - 1, -1):
        if text.endswith(mark[:size]):
            return text[:-size], text[-size:]
    return text, ""


class _Lasting:
    """A stream that takes what is written when nobody reads it any more. A thread that writes would end otherwise, and
    the program wait for it. A screen is drawn in UTF-8 whatever the locale says; keys are read so, too."""

    def __init__(self, stream: TextIOWrapper) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            self._stream.buffer.write(text.encode(errors="replace"))

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()
