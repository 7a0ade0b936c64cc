"""What a command sees of the chat's front end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from localspec.errors import ExitCode
from localspec.talk.book import SessionBook
from localspec.talk.chat import Chat
from localspec.talk.turn import Turn


class Leave(Exception):
    """The user wants to go, with this exit code."""

    def __init__(self, code: ExitCode = ExitCode.OK) -> None:
        super().__init__(code)
        self.code = code


class LineCleared(Exception):
    """ctrl-c at a prompt with text in it: the text is given up (the history has it)."""


class Terminal(Protocol):
    """Where messages are typed."""

    #: Enter begins a new line instead of sending.
    multiline: bool
    #: What of the last message was written by hand: only there files may be mentioned.
    typed: str

    def read(self, default: str = "") -> str | None:
        """The next message; ``default`` is there to be changed. ``None``: the end of input (ctrl-d).

        Raises:
            KeyboardInterrupt: ctrl-c, with nothing typed.
            LineCleared: ctrl-c, with something typed.
        """

    def withdraw(self) -> None:
        """ctrl-c stopped something: what was typed in the meantime is not sent by itself. It is the
        draft of the next message, or given up where there is no way to show it; the user is told."""

    def copy(self, text: str) -> str:
        """Puts text into the clipboard; a line that says which way it went, or that there is none."""


class Front(Protocol):
    """The loop, as commands see it."""

    @property
    def chat(self) -> Chat: ...

    @property
    def book(self) -> SessionBook | None:
        """Where the conversation is saved; ``None``: it is not."""

    @property
    def terminal(self) -> Terminal: ...

    @property
    def columns(self) -> int:
        """How wide lines may be that are said."""

    @property
    def keys(self) -> Sequence[tuple[str, str]]:
        """What keys do: name and meaning."""

    @property
    def keys_in_brief(self) -> Sequence[str]:
        """The same in a few words each, without what few people need."""

    @property
    def paces(self) -> bool:
        """Whether it has keys that let an answer go on step by step."""

    def say(self, text: str) -> None:
        """Lines for the user; control characters in them are made harmless."""

    def turn(self, events: Turn) -> ExitCode:
        """Shows an answer while it comes."""
