"""A chat and its saved session in step: the chat is a line of turns, the session the tree it was cut from."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from threading import RLock
from typing import Any

from localspec.chat.conversation import Conversation, Turn
from localspec.chat.store import Entry, MessageTree, Session, Store, new_id, now, title_of
from localspec.chat.store.texts import as_json, from_json
from localspec.errors import StoreError
from localspec.talk import settings
from localspec.talk.attach import own_words
from localspec.talk.chat import Chat
from localspec.types import Finished, GenerationRequest, Message

#: An exchange as it was once: the question, and its answer unless it waits for one.
Version = tuple[Entry, ...]


class SessionBook:
    """Writes down what a chat says, and takes up what was said before.

    A question is saved when it is asked and its answer when it ends. Another answer to the same question stands beside
    the first, an edited question beside the old one; going back moves the end of the branch and removes nothing. What
    cannot be saved waits in memory, in order, and is tried again with whatever comes next; a line says so once.

    A session begins with its first question. A conversation that the chat takes up from elsewhere begins a new one.

    Args:
        chat: it is listened to from now on.
    """

    def __init__(self, chat: Chat, store: Store) -> None:
        self.store = store
        self._chat = chat
        self._lock = RLock()
        self._waiting: deque[Callable[[], object]] = deque()
        self._failing = False
        self._news: list[str] = []
        self._draft: str | None = None  # typed, and not written yet
        #: Sessions that were left before all of them was written.
        self._left: list[tuple[Session, MessageTree]] = []
        self._follow(chat.conversation)
        chat.listeners.append(self)

    def _follow(self, conversation: Conversation) -> None:
        """From now on this conversation is written down, as a session of its own."""
        self._leave()
        self._conversation = conversation
        self.session = Session(new_id(), created=now(), system=conversation.system)
        self.tree = MessageTree()
        #: The messages of the conversation's turns, in their order.
        self._path: list[str] = []
        self._unwritten: list[Entry] = []
        self._begun = False
        self._asked: str | None = None
        for turn in conversation.turns:
            self._path.append(self._grow(self._end(), turn))

    # -- what the chat tells

    def asked(self, kept: int, question: str) -> None:
        with self._lock:
            parent = self._path[kept - 1] if kept else None
            same = (one for one in self.tree.below(parent) if (one.role, one.content) == ("user", question))
            if (known := next(same, None)) is not None:
                self._asked = known.id
            else:
                self._asked = self._grow(parent, Turn(Message("user", question)))
                self._go_on_after(self._asked)
            if parent is None:
                self._title_anew(self._asked)

    def answered(self, request: GenerationRequest, finished: Finished | None) -> None:
        with self._lock:
            turns = self._conversation.turns
            question = self._asked or self._grow(self._end(), turns[-2])
            answer = self._grow(question, turns[-1], _params(self._chat, request), _stats(finished))
            self._path[len(turns) - 2 :] = [question, answer]
            self._go_on_after(answer)
            self._keep_settings()

    def changed(self) -> None:
        with self._lock:
            if self._chat.conversation is not self._conversation:
                self._follow(self._chat.conversation)
                return
            del self._path[len(self._conversation.turns) :]
            unanswered = self._chat.unanswered
            # A question with no answer is the end of its branch, unless it was to take the place of another.
            leaf = self._asked if unanswered is not None and unanswered[1] == 0 else self._end()
            if self.session.leaf != leaf:
                self.session = replace(self.session, leaf=leaf)
                self._write_if_begun(self.store.set_leaf, leaf)
            if self.session.system != self._conversation.system:
                self.session = replace(self.session, system=self._conversation.system)
                self._write_if_begun(self.store.set_system, self.session.system)

    # -- taking up a session, and walking in it

    def open(self, session: Session) -> list[str]:
        """The chat goes on with a saved session, with its system message and settings unless they were given on the
        command line. Returns lines that say what changed.

        Raises:
            StoreError: it cannot be read, or is the one that cannot be written; nothing has changed.
        """
        with self._lock:
            if not self.save() and session.id == self.session.id:
                raise StoreError("the end of this conversation is not saved yet", hint="Go on with it as it is.")
            session, tree = self.store.session(session.id) or session, self.store.tree(session.id)
            self._leave()
            self.session, self.tree, self._unwritten, self._begun = session, tree, [], True
            system, lines = settings.system_taken_over(self._chat, session.system)
            self._start(session.leaf, system)
            self.note_use()
            return [*lines, *settings.taken_over(self._chat, session.settings)]

    def walk(self, entry: str) -> None:
        """The chat goes on with the newest branch through this message."""
        with self._lock:
            waiting = [*self._chat.attachments]
            self._start(self.tree.leaf_below(entry), self._conversation.system)
            self._chat.attachments += waiting  # the next message is the same

    def siblings(self, turn: int) -> tuple[int, tuple[Entry, ...]]:
        """What stands in the place of a turn of the conversation, the oldest first, and which of them it is."""
        with self._lock:
            there = self.tree.siblings(self._path[turn])
            return [one.id for one in there].index(self._path[turn]), there

    def versions(self, back: int) -> tuple[int | None, tuple[Version, ...]]:
        """The exchanges in the place of one of the conversation, and which of them that is (``None``: none).

        Args:
            back: 1 is the last exchange, 2 the one before; 0 is what once followed the last.
        """
        with self._lock:
            return self._versions(self._questions()[-back] if back else len(self._path))

    def places(self) -> tuple[tuple[int, int], ...]:
        """Which of its versions every exchange of the conversation is, from 1, and how many there are."""
        with self._lock:
            found = [self._versions(at) for at in self._questions()]
            return tuple((0 if current is None else current + 1, len(versions)) for current, versions in found)

    def exchanges(self) -> int:
        """Questions of the conversation."""
        with self._lock:
            return len(self._questions())

    def last_question(self) -> str | None:
        return self._conversation.last_question()

    @property
    def unanswered(self) -> str | None:
        """The question after the end of the conversation that has no answer yet."""
        return None if self._chat.unanswered is None else self._chat.unanswered[0]

    # -- what the user does to the session

    def rename(self, title: str) -> None:
        with self._lock:
            self.session = replace(self.session, title=title)
            self._write_if_begun(self.store.rename, title)

    def keep_draft(self, text: str, session: str | None = None) -> None:
        """Keeps text that is not sent yet: a session that has been read brings it back (``session.draft``).

        Args:
            session: the one that the text belongs to; by default this one.
        """
        with self._lock:
            if session not in (None, self.session.id):
                self._waiting.append(_later(self.store.set_draft, session, text))
                self.save()
            elif text != self.session.draft:
                self.session = replace(self.session, draft=text)
                self._draft = text
                if self._unwritten:
                    self._go_on_after(self._path[-1])
                else:
                    self._begin()
                    self.save()

    def note_use(self) -> None:
        """The session is the one that was in use last. That it cannot be noted loses nothing that was said."""
        with self._lock, suppress(StoreError):
            if self._begun:
                self.store.note_use(self.session.id)

    def news(self) -> list[str]:
        """Lines for the user that were not taken yet."""
        with self._lock:
            news, self._news = [*self.store.news(), *self._news], []
            return news

    def save(self) -> bool:
        """Writes what waits; returns whether nothing waits any more. Raises nothing: why it failed is in the news."""
        with self._lock:
            try:
                while self._waiting:
                    self._waiting[0]()
                    self._waiting.popleft()
                if self._draft is not None:
                    self.store.set_draft(self.session.id, self._draft)
                    self._draft = None
                self._left.clear()
            except StoreError as error:
                if not self._failing:
                    self._news.append(
                        f"{error.message}. The conversation is kept in memory, and saved as soon as that works"
                        f" (/save FILE writes it elsewhere). {error.hint}"
                    )
                self._failing = True
                return False
            if self._failing:
                self._news.append("the conversation is saved again; nothing is missing")
            self._failing = False
            return True

    def unsaved(self) -> list[tuple[Session, MessageTree]]:
        """The sessions that hold something which waits to be written, the one that is gone on with as the last."""
        with self._lock:
            if not self._waiting and self._draft is None:
                return []
            return [one for one in (*self._left, (self.session, self.tree)) if one[1] or one[0].draft]

    # -- inside

    def _start(self, leaf: str | None, system: str | None) -> None:
        """The chat goes on with the branch that ends there. A question at its end that has no answer is asked anew by
        /regen, as one that brought nothing."""
        path = self.tree.path(leaf)
        unanswered = path[-1] if path and path[-1].role == "user" else None
        kept = path if unanswered is None else path[:-1]
        self._conversation = Conversation.of_turns(system, (entry.turn for entry in kept))
        self._path = [entry.id for entry in kept]
        self._asked = None if unanswered is None else unanswered.id
        self._chat.start(self._conversation, unanswered=None if unanswered is None else unanswered.content)

    def _questions(self) -> list[int]:
        """Where the questions of the conversation stand in its path."""
        return [at for at, entry in enumerate(self._path) if self.tree[entry].role == "user"]

    def _versions(self, at: int) -> tuple[int | None, tuple[Version, ...]]:
        """As `versions`, of the exchange whose question stands at a place of the path, or after its end. A question
        without an answer is one only while it waits to be asked."""
        versions: list[Version] = []
        for question in self.tree.below(self._path[at - 1] if at else None):
            versions += [(question, answer) for answer in self.tree.below(question.id)]
            if self.tree.left_out(question.id) and question.id == self.session.leaf:
                versions.append((question,))
        # After the end there may be a question that has no answer yet: the session ends with it.
        here = self._path[at : at + 2][-1] if at < len(self._path) else self.session.leaf
        return next((number for number, one in enumerate(versions) if one[-1].id == here), None), tuple(versions)

    def _end(self) -> str | None:
        return self._path[-1] if self._path else None

    def _grow(
        self,
        parent: str | None,
        turn: Turn,
        params: Mapping[str, Any] | None = None,
        stats: Mapping[str, Any] | None = None,
    ) -> str:
        """A new message in the tree, to be written."""
        entry = Entry(new_id(), parent, turn, now(), params or {}, stats or {})
        self.tree.add(entry)
        self._unwritten.append(entry)
        return entry.id

    def _go_on_after(self, leaf: str) -> None:
        """Writes the messages that are new; the session ends with ``leaf``."""
        self._begin()
        self.session = replace(self.session, leaf=leaf)
        new, self._unwritten = self._unwritten, []
        self._write(self.store.add, new, leaf)

    def _keep_settings(self) -> None:
        now_so = settings.differing(self._chat)
        if now_so != self.session.settings:
            self.session = replace(self.session, settings=now_so)
            self._write(self.store.set_settings, now_so)

    def _begin(self) -> None:
        """The session itself is written before what is in it; its title once there is a question to take it from."""
        first = next((entry for entry in self.tree if entry.role == "user"), None)
        title = self.session.title or ("" if first is None else _titled_after(first))
        if not self._begun or title != self.session.title:
            self.session = replace(self.session, title=title)
            self._waiting.append(_later(self.store.begin, replace(self.session, settings={}, draft="")))
        self._begun = True

    def _title_anew(self, asked: str) -> None:
        """A session that is called after a question which was left out is called after the one asked in its place."""
        others = (one for one in self.tree.siblings(asked) if one.id != asked and self.tree.left_out(one.id))
        if self.session.title in {_titled_after(one) for one in others}:
            self.rename(_titled_after(self.tree[asked]))

    def _leave(self) -> None:
        """Another session comes: what was typed belongs to the one before, which is remembered until it is written."""
        if self._draft is not None:
            self._waiting.append(_later(self.store.set_draft, self.session.id, self._draft))
            self._draft = None
        if self._waiting:
            self._left.append((self.session, self.tree))

    def _write_if_begun(self, write: Callable[..., object], *what: object) -> None:
        if self._begun:
            self._write(write, *what)

    def _write(self, write: Callable[..., object], *what: object) -> None:
        self._waiting.append(_later(write, self.session.id, *what))
        self.save()


def _titled_after(question: Entry) -> str:
    return title_of(own_words(question.content))


def _later(write: Callable[..., object], *what: object) -> Callable[[], object]:
    return lambda: write(*what)


def _params(chat: Chat, request: GenerationRequest) -> dict[str, Any]:
    """What an answer was made with: models, seed, and the settings that are not the default."""
    info = chat.engine.info
    models = {"model": info.target, "draft": info.draft}
    return {**models, "seed": chat.seed, "max_tokens": request.max_tokens, "settings": settings.differing(chat)}


def _stats(finished: Finished | None) -> dict[str, Any]:
    """How an answer went, for a program to read; empty for one that broke off."""
    if finished is None:
        return {}
    figures = {"timings": asdict(finished.timings), "speculation": asdict(finished.stats)}
    return {"reason": finished.reason, "tokens": finished.n, **from_json(as_json(figures))}  # as it is read back
