"""The loop: message or command, turn, prompt again. Nothing that goes wrong in a turn ends it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from types import FrameType

from localspec.cli.diagnostics import Ending, fail, note, say, tell
from localspec.cli.layout import columns
from localspec.cli.repl.keys import KEYS, KEYS_IN_BRIEF
from localspec.cli.repl.view import View
from localspec.errors import EngineDied, ExitCode, LocalspecError, UsageError
from localspec.talk import commands
from localspec.talk.book import SessionBook
from localspec.talk.chat import Chat
from localspec.talk.front import Leave, LineCleared, Terminal
from localspec.talk.turn import Turn, TurnEvent
from localspec.text.printable import printable
from localspec.types import Failed, Finished


class Repl:
    """Reads at a terminal, answers on a view; ``book`` keeps the conversation, if anybody does."""

    def __init__(self, chat: Chat, terminal: Terminal, view: View, book: SessionBook | None = None) -> None:
        self.chat = chat
        self.terminal = terminal
        self.book = book
        self._view = view

    def run(self, first: str | None) -> ExitCode:
        """Until the user leaves.

        Args:
            first: a message that is answered before the prompt appears; never a command.
        """
        try:
            if first is not None:
                self._guarded(lambda: self._ask(first))
            while True:
                with suppress(KeyboardInterrupt):  # between two lines of code; wherever it matters it is dealt with
                    self._tell_news()
                    self.take(self._read(), self.terminal.typed)
        except Leave as leave:
            return leave.code

    def once(self, message: str | None) -> ExitCode:
        """One question, typed if none is given, and its answer.

        Raises:
            LocalspecError: it cannot be asked, or the engine died of it.
        """
        try:
            if message is not None and not message.strip():
                raise UsageError("the message is empty", hint="Use -p TEXT, or pipe a message in.")
            return self._ask(self._read() if message is None else message)
        except Leave as leave:
            return leave.code

    def take(self, message: str, typed: str = "") -> None:
        """One message or command, whatever comes of it.

        Args:
            typed: what of it may mention files.

        Raises:
            Leave: the command says so, or ctrl-c came while an answer was being stopped.
        """
        if commands.is_command(message):
            self._guarded(lambda: commands.run(self, message))
            return
        before = list(self.chat.attachments)
        self._guarded(lambda: self._ask(message.removeprefix("/"), typed))
        if message.strip() and before and self.chat.attachments == before:
            names = ", ".join(one.name for one in before)
            note(f"still attached, for the next message: {names} (/undo takes the files back)")

    def _guarded(self, action: Callable[[], object]) -> None:
        """The prompt survives what goes wrong here."""
        try:
            action()
        except EngineDied as error:
            fail(error.message, error.hint)
            self._revive()
        except LocalspecError as error:
            fail(error.message, error.hint)
        except KeyboardInterrupt:
            # While a model loads or a file is read, or just before or after an answer: `turn` takes care of those.
            say("\nstopped")
            self.terminal.withdraw()
        except (Leave, Ending, BrokenPipeError):
            raise
        except Exception as error:  # a fault of ours must not cost the user the evening
            if self.chat.values["debug"]:
                raise
            fail(f"that did not work: {str(error) or type(error).__name__}")

    def _tell_news(self) -> None:
        """What became of saving the conversation, between two messages."""
        for line in () if self.book is None else self.book.news():
            note(line)

    def _ask(self, message: str, typed: str = "") -> ExitCode:
        return self.turn(self.chat.ask(message, typed=typed)) if message.strip() else ExitCode.OK

    @property
    def columns(self) -> int:
        return columns()

    @property
    def keys(self) -> Sequence[tuple[str, str]]:
        return KEYS

    @property
    def keys_in_brief(self) -> Sequence[str]:
        return KEYS_IN_BRIEF

    @property
    def paces(self) -> bool:
        return False

    def say(self, text: str) -> None:
        tell(printable(text, keep="\n\t"))

    def turn(self, events: Turn) -> ExitCode:
        """Shows an answer while it comes. ctrl-c stops it, and stays harmless until it has stopped; a second one
        leaves.

        Raises:
            Leave: the second ctrl-c.
            EngineDied: of it.
            LocalspecError: the question cannot be asked.
        """
        last: TurnEvent | None = None
        limit, guesses = self.chat.values["n_predict"], self.chat.guesses
        try:
            with self._view.waiting(), closing(events), _interrupts(self.chat.stop):
                for last in events:
                    if not isinstance(last, Finished | Failed):
                        self._view.show(last)
        except _Twice:
            self._view.finish(None, limit=limit, guesses=guesses)
            self.terminal.withdraw()  # or the shell would get it
            raise Leave(ExitCode.INTERRUPTED) from None
        ending = last if isinstance(last, Finished | Failed) else None
        if isinstance(ending, Failed) and ending.kind == EngineDied.__name__:
            self._view.finish(None, limit=limit, guesses=guesses)
            raise EngineDied(ending.message, hint=ending.hint)
        self._view.finish(ending, limit=limit, guesses=guesses, alone=tuple(self.chat.alone))
        if self.chat.stopping:
            self.terminal.withdraw()
        if isinstance(ending, Failed):
            return ending.exit_code
        stopped = ending is not None and ending.reason == "cancelled"
        return ExitCode.INTERRUPTED if stopped else ExitCode.OK

    def _revive(self) -> None:
        try:
            self.chat.engines.revive()
        except LocalspecError as error:
            fail(error.message, error.hint)
            note("the conversation is kept; the next message tries again")
        else:
            note("a new engine is running; the conversation so far is kept")

    def _read(self) -> str:
        """The next message.

        Raises:
            Leave: the end of input, or ctrl-c on an empty line after a warning.
        """
        warned = False
        while True:
            try:
                message = self.terminal.read()
            except LineCleared:
                pass
            except KeyboardInterrupt:
                # The first may have been meant for an answer that was over a moment before.
                if warned:
                    raise Leave(ExitCode.INTERRUPTED) from None
            else:
                if message is None:
                    raise Leave
                return message
            warned = True
            say("ctrl-c again, or ctrl-d, leaves")


class _Twice(KeyboardInterrupt):
    """ctrl-c while an answer is being stopped."""


@contextmanager
def _interrupts(stop: Callable[[], None]) -> Iterator[None]:
    """ctrl-c calls ``stop``; once more raises `_Twice`.

    A handler instead of an exception: nothing is torn out of what it was doing, so that no event gets lost.
    """
    pressed = False

    def press(_number: int, _frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            raise _Twice
        pressed = True
        stop()

    before = signal.signal(signal.SIGINT, press)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
