"""What slash commands see of the screen. All of it runs in the engine's thread and reaches the screen as news."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from queue import SimpleQueue
from typing import Protocol

from localspec.chat.conversation import Turn as PastTurn
from localspec.errors import EngineDied, ExitCode
from localspec.report import status_parts
from localspec.talk import clipboard
from localspec.talk.book import SessionBook
from localspec.talk.chat import Chat
from localspec.talk.front import LineCleared, Terminal
from localspec.talk.turn import Asked, Turn, TurnEvent
from localspec.text.thinking import Piece
from localspec.tui import actions
from localspec.tui.news import Came, Copied, Doing, Edits, Ended, Multiline, News, Returned, Said, Trouble
from localspec.types import Failed, Finished, Paced, Prefill

READING = "reading the prompt"
DOING = {"answer": "answering", "thinking": "thinking"}
NOTHING_YET = "stopped before the answer began; the question was left out: {key} asks it again"


class Room(Protocol):
    """What the front needs of the thread that it runs in."""

    @property
    def stopping(self) -> bool:
        """Whether the user stopped what runs."""

    def tell(self, news: News) -> None: ...

    def ready(self) -> None:
        """Loads an engine if none runs; raises why it cannot."""

    def seen(self, turns: tuple[PastTurn, ...]) -> None:
        """The screen shows the conversation so."""

    def show(self) -> None:
        """The screen shows the conversation as it is now."""

    def withdraw(self) -> None:
        """What waits is not sent by itself."""


class ScreenTerminal:
    """Where messages are typed, as commands see it: texts go to the screen, and come back when they were changed."""

    def __init__(self, room: Room, *, multiline: bool) -> None:
        self._room = room
        self._multiline = multiline
        self.typed = ""
        self.edited: SimpleQueue[str | None] = SimpleQueue()

    @property
    def multiline(self) -> bool:
        return self._multiline

    @multiline.setter
    def multiline(self, on: bool) -> None:
        self._multiline = on
        self._room.tell(Multiline(on))

    def read(self, default: str = "") -> str | None:
        self._room.tell(Edits(default))
        text = self.edited.get()
        if text is None:
            raise LineCleared
        self.typed = text
        return text

    def withdraw(self) -> None:
        self._room.withdraw()

    def copy(self, text: str) -> str:
        way = clipboard.put(text)
        self._room.tell(Copied(text, way.sequence))
        return way.said


class ScreenFront:
    """`localspec.talk.front.Front` for the full screen.

    Args:
        keymap: keys that the user changed, by the ids of their actions.

    Attributes:
        book: where the conversation is saved; ``None``: it is not.
        columns: how wide lines may be; kept by the screen.
        typed: what the user wrote of the turn that runs, to be given back if it cannot be asked.
    """

    def __init__(self, room: Room, chat: Chat, book: SessionBook | None, keymap: Mapping[str, str]) -> None:
        self._keymap = keymap
        self.chat = chat
        self.book = book
        self.columns = 80
        self.typed = ""
        self._room = room
        self._terminal = ScreenTerminal(room, multiline=chat.values["multiline_input"])

    @property
    def terminal(self) -> Terminal:
        return self._terminal

    @property
    def keys(self) -> Sequence[tuple[str, str]]:
        return actions.rows()

    @property
    def keys_in_brief(self) -> Sequence[str]:
        return actions.in_brief()

    @property
    def paces(self) -> bool:
        return True

    def say(self, text: str) -> None:
        self._room.show()  # first: what is said about it stands below it
        self._room.tell(Said(text))

    def edited(self, text: str | None) -> None:
        """From the screen's thread: the text that `Edits` asked for; ``None`` leaves it as it was."""
        self._terminal.edited.put(text)

    def turn(self, events: Turn) -> ExitCode:
        """Shows an answer while it comes.

        Raises:
            EngineDied: of it; what came of the answer is kept.
            LocalspecError: the question cannot be asked; its text is given back.
        """
        before = self.chat.conversation.turns
        try:
            with closing(events):
                last = self._pass_on(events)
        except BaseException:
            self._room.tell(Ended(kept=False, footer=()))
            if self.typed:
                self._room.tell(Returned(self.typed))
            raise
        after = self.chat.conversation.turns
        kept = bool(after) and (not before or after[-1] is not before[-1])
        self._room.seen(after)
        self._room.tell(Ended(kept, self._footer(last, kept)))
        return self._code(last)

    def _pass_on(self, events: Turn) -> TurnEvent | None:
        """Every event to the screen; returns the last."""
        self._room.ready()
        if self._room.stopping:  # before there was anything that could be stopped
            self.chat.stop()
        last: TurnEvent | None = None
        doing = ""
        for last in events:
            if isinstance(last, Asked | Prefill):
                self._room.tell(Doing(READING, _share(last)))
            elif isinstance(last, Piece) and doing != last.kind:
                doing = last.kind
                self._room.tell(Doing(DOING[doing]))
            elif isinstance(last, Paced):  # the screen says that it waits; what comes next says what it is at
                doing = ""
            self._room.tell(Came(last))
        return last

    def _footer(self, last: TurnEvent | None, kept: bool) -> tuple[str, ...]:
        if not isinstance(last, Finished):
            return ("broken off",)
        if last.reason == "cancelled" and not kept:
            return (NOTHING_YET.format(key=actions.first_key("regenerate", self._keymap)),)
        if not self.chat.values["show_timings"]:
            return ("stopped",) if last.reason == "cancelled" else ()
        limit, alone = self.chat.values["n_predict"], tuple(self.chat.alone)
        return tuple(status_parts(last, limit=limit, guesses=self.chat.guesses, alone=alone))

    def _code(self, last: TurnEvent | None) -> ExitCode:
        if isinstance(last, Failed):
            if last.kind == EngineDied.__name__:
                raise EngineDied(last.message, hint=last.hint)
            self._room.tell(Trouble(last.message, last.hint))
            return last.exit_code
        return ExitCode.INTERRUPTED if self.chat.stopping else ExitCode.OK


def _share(event: Asked | Prefill) -> float | None:
    """How much of the prompt is read."""
    return event.done / (event.total - 1) if isinstance(event, Prefill) and event.total > 1 else None
