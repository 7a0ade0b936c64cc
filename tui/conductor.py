"""The one thread that owns the engine: jobs one after another, and news of them for the screen."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Literal

from localspec.chat.conversation import Conversation
from localspec.chat.conversation import Turn as PastTurn
from localspec.chat.store import Store
from localspec.errors import EngineDied, LocalspecError, UsageError
from localspec.options import Values
from localspec.talk import commands
from localspec.talk.book import SessionBook
from localspec.talk.chat import Chat
from localspec.talk.compare import Comparison
from localspec.talk.front import Leave
from localspec.talk.session_commands import walked
from localspec.tui.engines import Opener, ScreenEngines
from localspec.tui.front import ScreenFront
from localspec.tui.news import (
    Brief,
    Compared,
    Conversed,
    Doing,
    Gone,
    Holds,
    Left,
    Mailbox,
    News,
    Opened,
    Places,
    Ready,
    Returned,
    Said,
    Trouble,
    Waiting,
)
from localspec.types import EngineInfo

PATIENCE = 3.0  # seconds that what runs gets to end


@dataclass(frozen=True, slots=True)
class Job:
    """Something for the engine's thread: load an engine, answer a message, run a command, answer the last question
    with guesses and without, go on with the version of the last exchange that is so many places on. ``typed`` is what
    of a message may mention files."""

    kind: Literal["load", "message", "command", "compare", "walk"]
    text: str = ""
    places: int = 0
    typed: str = ""


class Conductor:
    """A conversation in a thread of its own. Its methods are for the screen's thread unless they say otherwise.

    Args:
        wake: called in any thread when `mailbox` has something new.
        typed: as `Chat` has it.
        store: where the conversation is saved; ``None``: nowhere.
        keymap: keys that the user changed, by the ids of their actions.
    """

    def __init__(
        self,
        opener: Opener,
        values: Values,
        wake: Callable[[], None],
        *,
        conversation: Conversation | None = None,
        typed: Collection[str] = (),
        store: Store | None = None,
        keymap: Mapping[str, str] | None = None,
    ) -> None:
        self.mailbox = Mailbox(wake)
        self._engines = ScreenEngines(opener, values, self)
        self.chat = Chat(self._engines, values, conversation or Conversation(values["system"]), typed)
        self.book = None if store is None else SessionBook(self.chat, store)
        self.front = ScreenFront(self, self.chat, self.book, keymap or {})
        self._changed = threading.Condition()
        self._jobs: deque[Job] = deque()
        self._running: Job | None = None
        self._comparison: Comparison | None = None
        self._stopping = self._closing = False
        self._shown = self.chat.conversation.turns
        self._conversation = self.chat.conversation
        self._places: tuple[tuple[int, int], ...] = ()
        self._session = None if self.book is None else self.book.session.id
        self._info: EngineInfo | None = None  # as the screen knows it
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    # -- for the screen

    def start(self) -> None:
        """Begins, with what was put in so far."""
        self._thread.start()

    def put(self, job: Job) -> None:
        """Does it when all that was put in before is done."""
        with self._changed:
            self._jobs.append(job)
            self._changed.notify()
        self._tell_waiting()

    @property
    def busy(self) -> bool:
        """Whether something runs or waits."""
        with self._changed:
            return self._running is not None or bool(self._jobs)

    def stop(self) -> None:
        """Ends what runs, within one pass; what waits is given back."""
        if self._running is None:
            return
        self._stopping = True
        self._stop_answers()
        self.withdraw()

    def close(self) -> None:
        """Stops what runs, keeps what came of it, and ends engine and thread."""
        with self._changed:
            self._closing = self._stopping = True
            self._jobs.clear()
            self._changed.notify()
        self._stop_answers()
        self.front.edited(None)
        if self._thread.is_alive():
            self._thread.join(PATIENCE)

    def _stop_answers(self) -> None:
        self.chat.stop()
        if self._comparison is not None:
            self._comparison.stop()

    def counting(self) -> tuple[str, int] | None:
        """From any thread: what tokens are counted with, and its context; ``None``: nothing is loaded."""
        info = self._engines.info
        return None if info is None else (info.target, info.n_ctx)

    @property
    def server(self) -> str | None:
        """From any thread: the URL of the server that answers; ``None``: an engine here does, or none."""
        info = self._engines.info
        return None if info is None else info.server

    # -- for what runs in the thread

    @property
    def stopping(self) -> bool:
        """Whether the user stopped what runs."""
        return self._stopping

    def tell(self, news: News) -> None:
        self.mailbox.put(news)

    def withdraw(self) -> None:
        """From any thread: what waits is not done by itself; texts go back to where they were typed."""
        with self._changed:
            texts = [job.text for job in self._jobs if job.text]
            self._jobs.clear()
        if texts:
            self.tell(Returned("\n\n".join(texts)))
            self._tell_waiting()

    def seen(self, turns: tuple[PastTurn, ...]) -> None:
        """The screen shows the conversation so."""
        self._shown = turns

    def show(self) -> None:
        """The screen shows the conversation as it is now."""
        turns = self.chat.conversation.turns
        if len(turns) != len(self._shown) or any(a is not b for a, b in zip(turns, self._shown, strict=True)):
            self.seen(turns)
            self._places = ()  # what is shown anew has none
            self.tell(self._conversed(turns))
        self._conversation = self.chat.conversation
        if self.book is not None:
            self._show_session(self.book)

    def _conversed(self, turns: tuple[PastTurn, ...]) -> Conversed:
        other = self.chat.conversation is not self._conversation
        anew = other and (self.book is None or self.book.session.id != self._session)
        return Conversed(turns, anew=anew, saved=self.book is not None)

    def tell_news_of_saving(self) -> None:
        """From any thread. What runs may show another conversation, which clears what was said: then the news waits."""
        if self._thread.is_alive() and not self.busy:
            self._tell_news()

    def _tell_news(self) -> None:
        for line in self.book.news() if self.book is not None else ():
            self.note(line)

    def ready(self) -> None:
        """Loads an engine if none runs.

        Raises:
            LocalspecError: why it cannot.
        """
        if not self._engines.loaded:
            self._load()

    def doing(self, what: str, share: float | None = None) -> bool:
        self.tell(Doing(what, share))
        return not self._stopping

    def note(self, text: str) -> None:
        self.tell(Said(text))

    # -- the thread

    def _run(self) -> None:
        while (job := self._next()) is not None:
            self._guarded(job)
            self._rest()
        self._engines.close()

    def _next(self) -> Job | None:
        """Waits for a job; ``None``: it is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._closing)
            if self._closing:
                return None
            self._running = self._jobs.popleft()
            self._stopping = False
        self._tell_waiting()
        return self._running

    def _rest(self) -> None:
        """A job is done: the screen sees what has become of conversation and engine."""
        self.show()
        self._tell_engine()
        self.tell(Holds(self._engines.memory))
        self._tell_news()
        self._running = None
        self.tell(Doing(""))

    def _show_session(self, book: SessionBook) -> None:
        if book.session.id != self._session:
            self._session = book.session.id
            self.tell(Opened(book.session.id, book.session.draft))
        if (places := book.places()) != self._places:
            self._places = places
            self.tell(Places(places))

    def _tell_engine(self) -> None:
        info = self._engines.info
        if info is not self._info:
            self._info = info
            self.tell(Gone() if info is None else Ready(info))

    def _guarded(self, job: Job) -> None:
        """The thread survives what goes wrong here."""
        try:
            self._do(job)
        except EngineDied as error:
            self._engines.close()
            self.tell(Trouble(error.message, error.hint))
        except LocalspecError as error:
            self.tell(Trouble(error.message, error.hint))
        except Leave as leave:
            self.tell(Left(leave.code))
        except Exception as error:  # a fault of ours must not cost the user the evening
            self.tell(Trouble(f"that did not work: {str(error) or type(error).__name__}"))

    def _do(self, job: Job) -> None:
        if job.kind == "load":
            self._load()
        elif job.kind == "command":
            self._command(job.text)
        elif job.kind == "compare":
            self._compare()
        elif job.kind == "walk":
            self.tell(Brief(self._walked(job.places)))
        else:
            self.front.typed = job.text
            self.front.turn(self.chat.ask(job.text.removeprefix("/"), typed=job.typed))

    def _load(self) -> None:
        self.doing("loading the model …")
        self._engines.revive()
        self._tell_engine()

    def _command(self, line: str) -> None:
        self.front.typed = ""
        commands.run(self.front, line)

    def _compare(self) -> None:
        self._comparison = comparison = Comparison(self.chat)
        try:
            self.ready()
            self.doing("comparing")
            if self._stopping:  # before there was anything that could be stopped
                comparison.stop()
            with closing(comparison.run()) as steps:
                for step in steps:
                    self.tell(Compared(step))
        finally:
            self._comparison = None
            self.tell(Compared(None))

    def _walked(self, places: int) -> str:
        try:
            return walked(self.front, places)
        except UsageError as error:  # a key may be pressed where there is nothing to do
            return f"{error.message}. {error.hint}"

    def _tell_waiting(self) -> None:
        with self._changed:
            texts = tuple(job.text for job in self._jobs if job.text)
        self.tell(Waiting(texts))
