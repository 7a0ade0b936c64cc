"""Saved sessions at the prompt: slash commands, and the flags that take one up."""

from __future__ import annotations

import json
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from localspec.chat.store import Session, Store, new_id
from localspec.cli.output import Output
from localspec.cli.repl.loop import Repl
from localspec.cli.repl.view import View
from localspec.errors import StoreError
from localspec.talk.book import SessionBook
from localspec.talk.chat import Chat
from localspec.talk.completion import completions
from localspec.talk.session_commands import walked
from tests.chat.stores import told
from tests.cli.repl.support import Typed, chat, contents, run
from tests.cli.support import TAKEN, Terminal, error_line, plain
from tests.cli.support import run as command

FAKE = "tests.cli.repl.fake_main"
CHAT = ("chat", "--no-tui", "-m", "large.gguf", "-s", "3", "-n", "3", "--ignore-eos")
LONG = ("chat", "--no-tui", "-m", "slow-large.gguf", "-s", "3", "-n", "3000", "--ignore-eos")
Said = pytest.CaptureFixture[str]


class Prompt:
    """A chat whose sessions are saved, and what it says on stderr."""

    def __init__(self, store: Store, said: Said) -> None:
        self.chat: Chat = chat(n_predict=2, temp=0.8, seed=3)
        self.book = SessionBook(self.chat, store)
        self.repl = Repl(self.chat, Typed(()), View(Output(), self.chat.values, plain=True), self.book)
        self._said = said

    def take(self, line: str) -> str:
        self._said.readouterr()
        self.repl.take(line)
        return self._said.readouterr().err


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "data" / "localspec" / "sessions.db")


@pytest.fixture
def prompt(store: Store, capsys: Said) -> Prompt:
    return Prompt(store, capsys)


# Commands


def test_sessions_lists_what_is_saved(prompt: Prompt, store: Store) -> None:
    assert prompt.take("/sessions") == "no conversation is saved yet\n"
    prompt.take("a question \x1b[31mof mine")
    other = told(store, "another", "x")
    store.pin(other.id)
    first, second = prompt.take("/sessions").splitlines()
    assert first.startswith(f" ^ {other.id[:8]}  20")
    assert first.endswith("another (1 question)")
    assert second.startswith(f"*  {prompt.book.session.id[:8]}")
    assert "\x1b" not in second
    for number in range(30):
        told(store, f"t{number}", "x", "y", "z")
    lines = prompt.take("/sessions").splitlines()
    assert len(lines) == 21
    assert lines[-1] == "and 12 more; /sessions TEXT searches in all"
    assert lines[1].endswith("t29 (2 questions)")


def test_sessions_finds_words_in_all_of_them(prompt: Prompt, store: Store) -> None:
    told(store, "fruit", "an [apple] a day", "no answer about Apples")
    told(store, "apple pie", "x")
    said = prompt.take("/sessions apple").splitlines()
    assert said[0].endswith("  apple pie")
    assert said[1].endswith("  fruit")
    assert sorted(said[2:]) == ["    an [*apple*] a day", "    no answer about *Apple*s"]
    assert prompt.take('/sessions "nothing') == 'nothing is found with "nothing\n'


def test_session_goes_on_with_one(prompt: Prompt, store: Store) -> None:
    prompt.take("here")
    told(store, "garden", "first", "second", "third", "fourth")
    said = prompt.take("/session gar").splitlines()
    assert said[0].startswith("going on with garden: 2 exchanges, last on 20")
    assert said[1] == "the last question was: third"
    assert contents(prompt.chat) == ["first", "second", "third", "fourth"]
    assert "garden, saved as" in prompt.take("/session")
    prompt.take("fifth")
    assert store.find("garden").questions == 3
    assert "there is no saved conversation attic" in prompt.take("/session attic")
    told(store, "gardening", "x")
    assert "2 conversations are called gard:" in prompt.take("/session gard")


def test_session_says_what_has_no_answer(prompt: Prompt, store: Store) -> None:
    told(store, "garden", "first", "second", "third")
    assert "the last question has no answer, /regen asks it: third" in prompt.take("/session garden")
    prompt.take("/regen")
    assert contents(prompt.chat)[:3] == ["first", "second", "third"]


def test_rename(prompt: Prompt, store: Store) -> None:
    prompt.take("a")
    assert prompt.take("/rename plans for the garden") == "this conversation is now called plans for the garden\n"
    assert store.find("plans").id == prompt.book.session.id
    assert "the new name is missing" in prompt.take("/rename")


def test_siblings_are_listed_and_walked(prompt: Prompt) -> None:
    assert "nothing was asked" in prompt.take("/siblings")
    prompt.take("one")
    first = contents(prompt.chat)
    assert prompt.take("/siblings") == "there is one version of that exchange; /edit and /regen make others\n"
    prompt.take("/regen")
    prompt.take("two")
    said = prompt.take("/siblings")
    assert said.endswith("make others (there are several of exchange 2: /siblings 2)\n")
    lines = prompt.take("/siblings 2").splitlines()
    assert lines[0] == f"  1  one -> {first[1]}"
    assert lines[1].startswith("* 2  one -> ")
    assert lines[2] == "/sibling M 2 goes on with one of them"
    assert prompt.take("/sibling 1 2").splitlines() == ["going on there: 1 exchange", "the last question was: one"]
    assert contents(prompt.chat) == first
    assert prompt.take("/sibling 2").splitlines() == ["going on there: 2 exchanges", "the last question was: two"]
    prompt.take("/undo 2")
    assert len(prompt.take("/siblings").splitlines()) == 3  # what was taken back
    prompt.take("/sibling 1")
    assert contents(prompt.chat) == first


def test_a_question_that_waits_for_its_answer_is_no_other_version(prompt: Prompt, store: Store) -> None:
    """What the keys walk are the versions of the last exchange, also where a question after it was stopped."""
    prompt.take("one")
    prompt.take("/regen")
    run = prompt.chat.ask("two")
    next(run)
    run.close()  # stopped before the answer began
    assert prompt.book.unanswered == "two"
    assert walked(prompt.repl, -1) == "version 1 of 2"
    assert walked(prompt.repl, 1).startswith("version 2 of 2")


def test_what_is_exported_for_the_web_ui_comes_back_with_its_branches(prompt: Prompt, tmp_path: Path) -> None:
    for line in ("one", "/regen", "two", "/rename a talk"):
        prompt.take(line)
    assert "2 exchanges" in prompt.take(f"/export {tmp_path}/talk.jsonl")
    assert "a talk" in prompt.take(f"/import {tmp_path}/talk.jsonl")
    before = prompt.book.session
    (other,) = (one for one in prompt.book.store.sessions() if one.id != before.id)
    prompt.take(f"/session {other.id}")
    assert prompt.book.places() == ((2, 2), (1, 1))
    assert [one.content for one in prompt.book.tree] == [one.content for one in prompt.book.store.tree(before.id)]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("/sibling", "there is no version without a number of that exchange. There are 2"),
        ("/sibling x", "there is no version x"),
        ("/sibling 0", "there is no version 0"),
        ("/sibling 3", "there is no version 3"),
        ("/sibling ²", "there is no version ²"),
        ("/sibling 1 2", "there is no exchange 2"),
        ("/siblings 0", "there is no exchange 0"),
        ("/siblings x", "there is no exchange x"),
        ("/delete", "is missing"),
        ("/delete undo", "no conversation is deleted"),
        ("/delete attic", "there is no saved conversation attic"),
        ("/import", "is missing"),
        ("/import /no/such/file", "No such file"),
    ],
)
def test_mistakes_change_nothing(prompt: Prompt, line: str, said: str) -> None:
    prompt.take("a")
    prompt.take("/regen")
    before = contents(prompt.chat)
    assert said in prompt.take(line)
    assert contents(prompt.chat) == before


def test_delete_can_be_undone_until_it_is_for_good(prompt: Prompt, store: Store) -> None:
    prompt.take("mine")
    told(store, "other", "x")
    assert "deleted: other; /delete undo brings it back" in prompt.take("/delete other")
    prompt.take("/delete mine")
    assert contents(prompt.chat) == []
    assert store.sessions() == ()
    assert prompt.take("/delete undo") == "it is back: mine\n"
    assert [session.title for session in store.sessions()] == ["mine"]
    assert prompt.take("/delete purge") == "1 deleted conversation is gone for good\n"
    assert store.sessions(deleted=True) == ()


def test_import(prompt: Prompt, store: Store, tmp_path: Path) -> None:
    path = tmp_path / "a file.json"
    said = [{"role": "user", "content": [{"type": "text", "text": "why?"}, {"type": "image_url"}]}]
    path.write_text(json.dumps([*said, {"role": "assistant", "content": "so"}]))
    lines = prompt.take(f"/import {path}").splitlines()
    assert lines[0].endswith("  why?")
    assert lines[1] == "images, sounds and results of tools have no place here and are left out: 1"
    prompt.take("/session why")
    assert contents(prompt.chat) == ["why?", "so"]


def test_export_names_the_page_by_the_session(prompt: Prompt, tmp_path: Path) -> None:
    prompt.take("a")
    prompt.take("/rename plans")
    assert "wrote 1 exchange" in prompt.take(f"/export {tmp_path}/a.html")
    assert "<title>plans</title>" in (tmp_path / "a.html").read_text()


def test_tab_offers_the_titles(prompt: Prompt, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for title in ("garden", "garage", "cellar", "", "garden"):
        told(store, title, "x")

    def offers(line: str) -> set[str]:
        return {one.text for one in completions(line, prompt.chat, prompt.book)}

    assert offers("/session ga") == offers("/delete ga") == {"garden", "garage"}
    assert completions("/session ga", prompt.chat) == []

    def refuse(*_: object) -> None:
        raise StoreError("no")

    monkeypatch.setattr(Store, "sessions", refuse)
    assert offers("/session ga") == set()


def test_without_a_book_commands_say_how_to_have_one(capsys: Said) -> None:
    one = chat(n_predict=2)
    front = Repl(one, Typed(()), View(Output(), one.values, plain=True))
    for line in ("/sessions", "/session x", "/rename x", "/siblings", "/sibling 1", "/delete x", "/import x"):
        front.take(line)
        assert "this conversation is not saved. Start localspec chat at a terminal" in capsys.readouterr().err
    run(one.ask("a"))


# The command


def at_terminal(data: Path, *more: str, chat: tuple[str, ...] = CHAT) -> Terminal:
    return Terminal(*chat, *more, module=FAKE, env={"XDG_DATA_HOME": str(data), "XDG_STATE_HOME": str(data)})


def piped(data: Path, *more: str, stdin: bytes = b"") -> tuple[int, str]:
    done = command(*CHAT, *more, module=FAKE, stdin=stdin, env={"XDG_DATA_HOME": str(data)})
    return done.returncode, done.stderr.decode()


def ask(terminal: Terminal, text: str) -> str:
    terminal.send(text.encode() + b"\r")
    terminal.until(TAKEN)
    return plain(terminal.prompt())


def leave(terminal: Terminal) -> int:
    terminal.send(b"\x04")
    return terminal.end()[0]


def test_a_conversation_at_a_terminal_goes_on_the_next_day(tmp_path: Path, store: Store) -> None:
    data = tmp_path / "data"
    with at_terminal(data) as terminal:
        terminal.prompt()
        ask(terminal, "the first question")
        assert leave(terminal) == 0
    assert store.find("the first").questions == 1
    with at_terminal(data, "--resume") as terminal:
        assert "going on with the first question: 1 exchange" in plain(terminal.prompt())
        ask(terminal, "the second")
        assert leave(terminal) == 0
    with at_terminal(data) as terminal:
        terminal.prompt()
        ask(terminal, "something else")
        assert leave(terminal) == 0
    with at_terminal(data, "--session", "THE FIRST") as terminal:
        greeting = plain(terminal.prompt())
        assert "2 exchanges" in greeting
        assert "the last question was: the second" in greeting
        assert "(2 questions)" in ask(terminal, "/sessions")
        assert leave(terminal) == 0
    assert [session.questions for session in store.sessions()] == [1, 2]


def test_a_kill_at_the_prompt_loses_nothing(tmp_path: Path, store: Store) -> None:
    with at_terminal(tmp_path / "data") as terminal:
        terminal.prompt()
        ask(terminal, "before the kill")
        terminal.process.kill()
        terminal.process.wait()
    assert len(store.tree(store.find("before").id)) == 2


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGHUP])
def test_what_came_of_an_answer_is_saved_if_the_chat_is_ended(
    tmp_path: Path, store: Store, end: signal.Signals
) -> None:
    with at_terminal(tmp_path / "data", chat=LONG) as terminal:
        terminal.prompt()
        terminal.send(b"a question\r")
        terminal.until(TAKEN)
        terminal.until(b"k")
        terminal.process.send_signal(end)
        assert terminal.end()[0] == (143 if end is signal.SIGTERM else -signal.SIGHUP)
    session = store.find("a question")
    answer = store.tree(session.id).path(session.leaf)[-1].turn
    assert answer.message.role == "assistant"
    assert "k" in answer.message.content
    assert answer.stopped


def test_what_is_not_to_be_saved_is_not(tmp_path: Path, store: Store) -> None:
    data = tmp_path / "data"
    with at_terminal(data, "--no-save-session") as terminal:
        terminal.prompt()
        ask(terminal, "a secret")
        assert "this conversation is not saved" in ask(terminal, "/sessions")
        assert leave(terminal) == 0
    assert piped(data, "-st", "-p", "a secret")[0] == 0
    assert piped(data, stdin=b"a secret")[0] == 0
    assert piped(data, "--simple-io", stdin=b"a secret\n")[0] == 0
    assert not store.path.exists()


def test_a_program_may_go_on_with_a_session(tmp_path: Path, store: Store) -> None:
    told(store, "garden", "a", "b")
    code, said = piped(tmp_path / "data", "--simple-io", "--resume", stdin=b"more\n")
    assert code == 0
    assert "going on with garden: 1 exchange" in said
    assert store.find("garden").questions == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--resume", "--simple-io"), "no conversation is saved yet. Leave out --resume."),
        (("--session", "x", "--simple-io"), "there is no saved conversation x"),
        (("--resume",), "--resume is given, but this is a single question"),
        (("--session", "x", "-st"), "--session is given, but this is a single question"),
        (("--resume", "--session", "x"), "--resume and --session are given together"),
        (("--resume", "--no-save-session"), "--resume and --no-save-session are given together"),
        (("--session", "x", "--no-save-session"), "--session and --no-save-session are given together"),
    ],
)
def test_sessions_that_cannot_be_had_are_known_before_a_model_is_loaded(
    tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    done = command(*CHAT, *arguments, module=FAKE, stdin=b"a question", env={"XDG_DATA_HOME": str(tmp_path / "data")})
    assert says in error_line(done, 2)


def test_a_file_that_cannot_be_used_does_not_stop_the_chat(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    data = tmp_path / "data"
    told(store, "t", "a")
    store.close()
    with closing(sqlite3.connect(store.path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with at_terminal(data) as terminal:
        terminal.prompt()
        said = " ".join(ask(terminal, "a question").split())
        assert "was written by a newer localspec (format 99" in said
        assert "is kept in memory" in said
        terminal.send(b"\x04")
        assert terminal.end()[0] == 0
    done = command(*CHAT, "--resume", "--simple-io", module=FAKE, env={"XDG_DATA_HOME": str(data)})
    assert done.returncode == 1
    assert "newer localspec" in done.stderr.decode()


def test_a_damaged_file_is_told_of_once(tmp_path: Path, store: Store) -> None:
    data = tmp_path / "data"
    store.path.parent.mkdir(parents=True)
    store.path.write_bytes(b"x" * 5000)
    with at_terminal(data) as terminal:
        terminal.prompt()
        assert "was damaged: it was moved to" in " ".join(ask(terminal, "a question").split())
        assert "damaged" not in ask(terminal, "another")
        assert leave(terminal) == 0
    assert store.find("a question").questions == 2
    assert len(list(store.path.parent.glob("*.corrupt-*"))) == 1


def test_a_damaged_file_is_told_of_where_nothing_is_left_to_go_on_with(tmp_path: Path, store: Store) -> None:
    store.path.parent.mkdir(parents=True)
    store.path.write_bytes(b"x" * 5000)
    done = command(*CHAT, "--resume", "--simple-io", module=FAKE, env={"XDG_DATA_HOME": str(tmp_path / "data")})
    moved, error = done.stderr.decode().splitlines()
    assert "was damaged: it was moved to" in moved
    assert "no conversation is saved yet" in error


def test_a_session_of_a_draft_alone_is_listed(prompt: Prompt, store: Store) -> None:
    store.begin(Session(new_id(), draft="half"))
    assert prompt.take("/sessions").endswith("(unsent) half (0 questions)\n")
