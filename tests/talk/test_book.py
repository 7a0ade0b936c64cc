"""The chat and its saved session: in step whatever is done, and nothing that was said is ever lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import settings as how
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from localspec.chat.conversation import Conversation
from localspec.chat.store import Session, Store
from localspec.chat.store.database import Database
from localspec.errors import StoreError
from localspec.talk.book import SessionBook
from localspec.talk.chat import Chat
from localspec.text.thinking import Piece
from tests.cli.repl.support import chat, contents, engine, messages, run
from tests.cli.scripted import Scripted

QUESTIONS = st.sampled_from(["a", "bc", "def"])


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "sessions.db")


def short(**changes: Any) -> Chat:
    return chat(**{"n_predict": 2, **changes})


def saved(store: Store, session: str) -> list[str]:
    """The branch that the file says is gone on with."""
    found = store.session(session)
    assert found is not None
    return [entry.content for entry in store.tree(session).path(found.leaf)]


def the_session(store: Store) -> Session:
    (session,) = store.sessions()
    return session


@contextmanager
def full(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A disk without room."""

    def refuse(_self: Database) -> NoReturn:
        raise StoreError("sessions.db cannot be written: database or disk is full", hint="Make room on that disk.")

    with monkeypatch.context() as patched:
        patched.setattr(Database, "writing", refuse)
        yield


# What is saved, and when


def test_a_turn_is_saved_with_what_it_was_made_of(store: Store) -> None:
    one = short(system="S", seed=7, temp=0.5)
    book = SessionBook(one, store)
    assert store.sessions() == ()
    text, _ = run(one.ask("why is it so?"))
    session = the_session(store)
    assert (session.title, session.system, session.questions) == ("why is it so?", "S", 1)
    assert session.settings["temp"] == "0.5"
    question, answer = store.tree(session.id).path(session.leaf)
    assert (question.content, answer.content) == ("why is it so?", text)
    assert answer.params["model"] == one.engine.info.target
    assert answer.params["seed"] == 7
    assert answer.params["settings"] == session.settings
    assert (answer.stats["tokens"], answer.stats["reason"]) == (2, "length")
    assert answer.stats["timings"]["predicted_n"] == 2
    assert answer.stats["speculation"]["emitted"] == 2
    assert book.session.id == session.id
    assert book.news() == []


def test_a_question_is_saved_before_its_answer_comes(store: Store) -> None:
    one = short()
    SessionBook(one, store)
    turn = one.ask("a")
    assert store.sessions() == ()
    next(event for event in turn if isinstance(event, Piece))
    assert saved(store, the_session(store).id) == ["a"]
    turn.close()
    assert len(saved(store, the_session(store).id)) == 2


def test_thinking_and_a_stop_are_saved(store: Store) -> None:
    one = chat(engine(Scripted(("<think>", "hm", "</think>", "yes", ".")), template="<think>{{ messages[0].content }}"))
    SessionBook(one, store)
    for event in one.ask("a"):
        if isinstance(event, Piece) and event.kind == "answer":
            one.stop()
    session = the_session(store)
    turn = store.tree(session.id).path(session.leaf)[-1].turn
    assert turn == one.conversation.turns[-1]
    assert (turn.thinking, turn.stopped) == ("hm", True)


def test_the_title_is_what_was_asked_below_the_files(store: Store) -> None:
    one = short()
    SessionBook(one, store)
    one.attach([("file", "text")])
    run(one.ask("what is it?"))
    assert the_session(store).title == "what is it?"


def test_a_system_message_is_saved_with_the_session(store: Store) -> None:
    one = short(system="S")
    book = SessionBook(one, store)
    one.set_system("before the first question")
    run(one.ask("a"))
    assert the_session(store).system == "before the first question"
    one.set_system(None)
    assert the_session(store).system is None
    assert book.session.system is None


# Branches


def test_regenerated_answers_and_edited_questions_stand_beside_the_old_ones(store: Store) -> None:
    one = short(temp=0.8, seed=3)
    book = SessionBook(one, store)
    run(one.ask("a"))
    run(one.regenerate())
    run(one.ask("b"))
    run(one.ask("c", replacing=2))
    run(one.regenerate())
    tree = store.tree(book.session.id)
    assert [entry.content for entry in tree.below(None)] == ["a", "c"]
    first, second = (tree.below(entry.id) for entry in tree.below(None))
    assert (len(first), len(second)) == (2, 2)
    assert [entry.content for entry in tree.below(first[1].id)] == ["b"]
    assert saved(store, book.session.id) == contents(one)
    assert book.siblings(0) == (1, tree.below(None))
    assert book.siblings(1) == (1, second)
    current, versions = book.versions(1)
    assert current == 3
    assert [version[0].content for version in versions] == ["a", "a", "c", "c"]


def test_an_edit_that_changes_nothing_is_another_answer(store: Store) -> None:
    one = short()
    book = SessionBook(one, store)
    run(one.ask("a"))
    run(one.ask("a", replacing=1))
    tree = store.tree(book.session.id)
    assert (len(tree), len(tree.below(None))) == (3, 1)


def test_walking_takes_along_what_followed(store: Store) -> None:
    one = short()
    book = SessionBook(one, store)
    for turn in (one.ask("a"), one.ask("b"), one.ask("c", replacing=2)):
        run(turn)
    _, versions = book.versions(1)
    book.walk(versions[0][0].id)
    assert contents(one)[::2] == ["a", "b"]
    assert saved(store, book.session.id) == contents(one)
    run(one.ask("d"))
    assert saved(store, book.session.id)[::2] == ["a", "b", "d"]
    assert book.exchanges() == 3


def test_places_count_versions(store: Store) -> None:
    one = short(temp=0.8, seed=3)
    book = SessionBook(one, store)
    assert book.places() == ()
    run(one.ask("a"))
    run(one.regenerate())
    run(one.ask("b"))
    run(one.ask("c"))
    run(one.regenerate(2))
    assert book.places() == ((2, 2), (2, 2))
    one.attach([("file", "text")])
    _, versions = book.versions(1)
    book.walk(versions[0][-1].id)
    assert book.places() == ((2, 2), (1, 2), (1, 1))
    assert [one.name for one in one.attachments] == ["file"]


def stopped_at_once(one: Chat, text: str, replacing: int = 0) -> None:
    turn = one.ask(text, replacing=replacing)
    one.stop()
    run(turn)


def test_a_question_that_waits_for_its_answer_is_a_version(store: Store) -> None:
    one = short()
    book = SessionBook(one, store)
    run(one.ask("a"))
    one.undo()
    turn = one.ask("b")
    one.stop()
    run(turn)
    current, versions = book.versions(0)
    assert [version[0].content for version in versions] == ["a", "b"]
    assert current == 1
    book.walk(versions[0][-1].id)
    current, versions = book.versions(1)
    assert (current, [version[0].content for version in versions]) == (0, ["a"])  # the other was left out


def test_a_question_that_was_left_out_is_no_version_of_the_next_and_gives_no_title(store: Store) -> None:
    one = short()
    book = SessionBook(one, store)
    stopped_at_once(one, "a")
    assert the_session(store).title == "a"
    stopped_at_once(one, "b")
    assert the_session(store).title == book.session.title == "b"
    run(one.ask("c"))
    assert the_session(store).title == "c"
    assert book.places() == ((1, 1),)
    run(one.ask("d"))
    stopped_at_once(one, "e", replacing=1)
    assert book.places() == ((1, 1), (1, 1))
    book.rename("mine")
    stopped_at_once(one, "f", replacing=2)
    run(one.ask("g", replacing=2))
    assert the_session(store).title == "mine"
    assert book.places() == ((2, 2),)


def test_a_walk_does_not_end_at_a_question_that_was_left_out_beside_answered_ones(store: Store) -> None:
    one = short()
    book = SessionBook(one, store)
    run(one.ask("a"))
    run(one.ask("b"))
    stopped_at_once(one, "c", replacing=1)
    run(one.ask("d", replacing=2))
    book.walk(book.versions(1)[1][0][-1].id)
    assert contents(one)[::2] == ["a", "b"]
    assert book.unanswered is None


def test_what_was_taken_back_can_be_gone_to_again(store: Store) -> None:
    one = short()
    book = SessionBook(one, store)
    for text in "abc":
        run(one.ask(text))
    one.undo(2)
    assert saved(store, book.session.id)[::2] == ["a"]
    current, versions = book.versions(0)
    assert (current, versions[0][0].content) == (None, "b")
    book.walk(versions[0][0].id)
    assert contents(one)[::2] == ["a", "b", "c"]
    one.undo(3)
    assert saved(store, book.session.id) == contents(one) == []
    book.walk(book.versions(0)[1][0][0].id)
    assert len(contents(one)) == 6


def test_a_question_that_brought_nothing_waits_for_its_answer(store: Store) -> None:
    one = short()
    book = SessionBook(one, store)
    run(one.ask("a"))
    turn = one.ask("b")
    one.stop()
    run(turn)
    assert contents(one)[::2] == ["a"]
    assert saved(store, book.session.id)[::2] == ["a", "b"]
    run(one.regenerate())
    assert saved(store, book.session.id) == contents(one)
    assert len(store.tree(book.session.id)) == 4  # the question is there once


def test_an_edit_that_brought_nothing_leaves_the_branch(store: Store) -> None:
    one = short()
    book = SessionBook(one, store)
    run(one.ask("a"))
    turn = one.ask("b", replacing=1)
    one.stop()
    run(turn)
    assert saved(store, book.session.id) == contents(one)
    assert [entry.content for entry in store.tree(book.session.id).below(None)] == ["a", "b"]


# Sessions


def test_a_new_conversation_is_a_new_session(store: Store) -> None:
    one = short()
    book = SessionBook(one, store)
    run(one.ask("a"))
    one.clear()
    assert len(store.sessions()) == 1  # nothing was said in the new one
    run(one.ask("b"))
    assert [session.title for session in store.sessions()] == ["b", "a"]
    assert book.session.title == "b"


def test_a_conversation_from_elsewhere_is_saved_once_it_goes_on(store: Store) -> None:
    one = short()
    book = SessionBook(one, store)
    one.start(Conversation("S", messages("a", "b", "c", "d")))
    assert store.sessions() == ()
    run(one.regenerate())
    assert (the_session(store).title, the_session(store).system) == ("a", "S")
    assert saved(store, book.session.id)[:3] == ["a", "b", "c"]
    assert len(store.tree(book.session.id)) == 5


def test_a_session_is_taken_up_with_its_settings(store: Store) -> None:
    one = short(system="S", temp=0.5)
    run_all = SessionBook(one, store)
    run(one.ask("a"))
    run(one.ask("b"))
    other = short(temp=0.8, top_k=3, typed=("top_k",))
    book = SessionBook(other, store)
    lines = book.open(store.find("a"))
    assert contents(other) == contents(one)
    assert other.conversation.turns == one.conversation.turns
    assert (other.values["temp"], other.conversation.system) == (0.5, "S")
    assert lines[0] == "system message: (none) -> S"
    assert lines[1].startswith("settings: temp 0.8 -> 0.5")
    run(other.ask("c"))
    assert saved(store, run_all.session.id)[::2] == ["a", "b", "c"]


def test_a_system_message_of_the_command_line_stays(store: Store) -> None:
    one = short(system="S")
    SessionBook(one, store)
    run(one.ask("a"))
    other = short(system="T", typed=("system",))
    book = SessionBook(other, store)
    assert book.open(store.find("a"))[0] == "as it is now: the system message (saved: S)"
    assert (other.conversation.system, the_session(store).system) == ("T", "T")


def test_a_question_without_answer_is_asked_again_after_a_crash(store: Store) -> None:
    one = short()
    SessionBook(one, store)
    run(one.ask("a"))
    turn = one.ask("b")
    next(event for event in turn if isinstance(event, Piece))  # and here the process dies
    other = short()
    book = SessionBook(other, Store(store.path))
    book.open(store.find("a"))
    assert contents(other)[::2] == ["a"]
    assert book.unanswered == "b"
    assert saved(store, book.session.id)[::2] == ["a", "b"]
    run(other.regenerate())
    assert saved(store, book.session.id) == contents(other)
    assert len(store.tree(book.session.id)) == 4


KILLED = """
import os, signal, sys
from pathlib import Path
from typing import Any, NoReturn
from localspec.chat.store import Store
from localspec.talk.book import SessionBook
from localspec.text.thinking import Piece
from tests.cli.repl.support import chat, run
one = chat(n_predict=2)
book = SessionBook(one, Store(Path(sys.argv[1])))
run(one.ask("first"))
book.keep_draft("half a tho")
for event in one.ask("second"):
    if isinstance(event, Piece):
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_kill_while_an_answer_comes_loses_no_word_that_was_typed(store: Store) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(store.path)], timeout=60)
    assert done.returncode == -signal.SIGKILL
    session = the_session(store)
    assert saved(store, session.id)[::2] == ["first", "second"]
    assert session.draft == "half a tho"


# Drafts and names


def test_drafts_are_kept_with_their_session(store: Store) -> None:
    one = short()
    book = SessionBook(one, store)
    book.keep_draft("")
    assert store.sessions() == ()
    book.keep_draft("hal")
    book.keep_draft("half")
    assert the_session(store).draft == "half"
    assert the_session(store).title == ""
    run(one.ask("half a question"))
    book.keep_draft("")
    assert (the_session(store).title, the_session(store).draft) == ("half a question", "")
    first = book.session.id
    one.start(Conversation(None, messages("a", "b")))
    book.keep_draft("x")
    assert saved(store, book.session.id) == ["a", "b"]
    book.keep_draft("typed before", first)
    book.keep_draft("typed here", book.session.id)
    assert {one.id: one.draft for one in store.sessions()} == {
        first: "typed before",
        book.session.id: "typed here",
    }


def test_renaming(store: Store) -> None:
    one = short()
    book = SessionBook(one, store)
    book.rename("before anything is said")
    run(one.ask("a"))
    assert the_session(store).title == "before anything is said"
    book.rename("plans")
    assert the_session(store).title == book.session.title == "plans"


# Nothing can be written


def test_what_cannot_be_saved_waits_and_is_told_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    one = short()
    book = SessionBook(one, store)
    run(one.ask("a"))
    with full(monkeypatch):
        run(one.ask("b"))
        run(one.regenerate())
        run(one.ask("c"))
        book.keep_draft("d")
        (line,) = book.news()
        assert "database or disk is full. The conversation is kept in memory" in line
        assert line.endswith("Make room on that disk.")
        assert not book.save()
        assert book.news() == []
        _, versions = book.versions(2)
        assert len(versions) == 2  # walking needs no disk
        assert saved(store, book.session.id)[::2] == ["a"]
    assert book.save()
    assert book.news() == ["the conversation is saved again; nothing is missing"]
    assert saved(store, book.session.id) == contents(one)
    assert len(store.tree(book.session.id)) == 7
    assert the_session(store).draft == "d"


def test_a_session_with_messages_that_wait_is_not_read_over_them(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    one = short()
    book = SessionBook(one, store)
    run(one.ask("a"))
    before = the_session(store)
    with full(monkeypatch):
        run(one.ask("b"))
        with pytest.raises(StoreError, match="is not saved yet"):
            book.open(before)
    assert contents(one)[::2] == ["a", "b"]
    book.open(before)
    assert contents(one)[::2] == ["a", "b"]


def test_what_waits_belongs_to_the_session_it_was_said_in(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    one = short()
    book = SessionBook(one, store)
    with full(monkeypatch):
        run(one.ask("a"))
        book.keep_draft("half")
        one.clear()
        run(one.ask("b"))
    run(one.ask("c"))
    drafts = {session.title: session.draft for session in store.sessions()}
    assert drafts == {"a": "half", "b": ""}
    assert saved(store, book.session.id)[::2] == ["b", "c"]


def test_sessions_with_something_that_waits_are_known_whole(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    one = short()
    book = SessionBook(one, store)
    run(one.ask("a"))
    assert book.unsaved() == []
    with full(monkeypatch):
        run(one.ask("b"))
        book.keep_draft("half")
        one.clear()
        book.keep_draft("")
        assert [session.draft for session, _ in book.unsaved()] == ["half"]  # what holds nothing is not missing
        run(one.ask("c"))
    found = [(session.draft, [entry.content for entry in tree][::2]) for session, tree in book.unsaved()]
    assert found == [("half", ["a", "b"]), ("", ["c"])]
    assert book.save()
    assert book.unsaved() == []


def test_a_session_that_cannot_be_read_is_not_taken_up(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    one = short()
    book = SessionBook(one, store)
    run(one.ask("a"))
    session = the_session(store)
    one.clear()
    run(one.ask("b"))

    def refuse(*_: object) -> None:
        raise StoreError("sessions.db cannot be read: disk I/O error")

    with monkeypatch.context() as patched:
        patched.setattr(Database, "rows", refuse)
        with pytest.raises(StoreError):
            book.open(session)
    run(one.ask("c"))
    assert contents(one)[::2] == saved(store, book.session.id)[::2] == ["b", "c"]


# All of it, in any order


class Evening(RuleBasedStateMachine):
    """Somebody chats, edits, goes back and forth, starts again; the disk is full now and then."""

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.disk = ExitStack()
        self.store = Store(Path(self.folder.name) / "sessions.db")
        self.full = False
        self.said: set[tuple[str, ...]] = set()
        self.arrive()

    def arrive(self) -> None:
        self.chat = short()
        self.book = SessionBook(self.chat, self.store)
        self.said.add(())

    def teardown(self) -> None:
        self.disk.close()
        self.store.close()
        self.folder.cleanup()

    @rule(text=QUESTIONS)
    def ask(self, text: str) -> None:
        run(self.chat.ask(text))

    @rule(text=QUESTIONS, back=st.integers(1, 3))
    def edit(self, text: str, back: int) -> None:
        run(self.chat.ask(text, replacing=min(back, self.book.exchanges())))

    @precondition(lambda self: self.chat.conversation.messages)
    @rule()
    def regenerate(self) -> None:
        run(self.chat.regenerate())

    @rule(text=QUESTIONS, back=st.integers(0, 2))
    def stop_at_once(self, text: str, back: int) -> None:
        turn = self.chat.ask(text, replacing=min(back, self.book.exchanges()))
        self.chat.stop()
        run(turn)

    @rule(most=st.integers(1, 3))
    def undo(self, most: int) -> None:
        self.chat.undo(most)

    @precondition(lambda self: len(self.book.tree) > 0)
    @rule(data=st.data())
    def walk(self, data: st.DataObject) -> None:
        self.book.walk(data.draw(st.sampled_from([entry.id for entry in self.book.tree])))

    @rule()
    def the_disk_is_full(self) -> None:
        self.full = not self.full
        if self.full:
            self.disk.enter_context(full(pytest.MonkeyPatch()))
        else:
            self.disk.close()
            assert self.book.save()

    @precondition(lambda self: not self.full and self.store.sessions())
    @rule()
    def come_back(self) -> None:
        session = self.book.session.id
        self.store.close()
        self.store = Store(self.store.path)
        found = self.store.session(session)
        if found is not None:
            before = contents(self.chat)
            self.arrive()
            self.book.open(found)
            assert contents(self.chat) == before

    @invariant()
    def nothing_is_lost(self) -> None:
        now = tuple(contents(self.chat))
        self.said |= {now[: n + 1] for n in range(len(now))}
        assert branches(self.book) >= self.said
        path = [self.book.tree[entry.id] for entry in self.book.tree.path(self.book.session.leaf)]
        turns = self.chat.conversation.turns
        assert tuple(entry.turn for entry in path)[: len(turns)] == turns
        assert len(path) - len(turns) == (self.book.unanswered is not None and path[-1].role == "user")
        if not self.full and self.book.session.leaf:
            stored = self.store.session(self.book.session.id)
            assert stored is not None
            assert stored.leaf == self.book.session.leaf
            assert list(self.store.tree(stored.id)) == list(self.book.tree)


def branches(book: SessionBook) -> set[tuple[str, ...]]:
    """Every beginning of a branch, as texts."""
    return {()} | {tuple(step.content for step in book.tree.path(entry.id)) for entry in book.tree}


TestEvening = Evening.TestCase
TestEvening.settings = how(max_examples=25, stateful_step_count=20, deadline=None)


def test_the_machine_knows_of_all_that_is_said() -> None:
    """What the machine holds against the tree is not empty."""
    machine = Evening()
    machine.begin()
    try:
        machine.ask("a")
        machine.nothing_is_lost()
        assert len(machine.said) == 3
        assert os.path.exists(machine.store.path)
    finally:
        machine.teardown()
