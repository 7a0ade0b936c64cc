"""How a conversation that is saved ends: what cannot be written where it belongs is written elsewhere."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NoReturn

import pytest

from localspec.chat.store import Session, Store
from localspec.chat.store.database import Database
from localspec.cli.saved import saved_at_the_end
from localspec.errors import StoreError
from localspec.talk.book import SessionBook
from tests.cli.repl.support import chat, run

Said = pytest.CaptureFixture[str]


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files, which is looked up anew."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return folder


def unusable(path: Path) -> Store:
    """Where the file should be is a folder."""
    path.mkdir(parents=True)
    return Store(path)


def ended(store: Store, held: Callable[[SessionBook], object]) -> None:
    """A chat with this store, to its end."""
    one = chat(n_predict=2)
    book = SessionBook(one, store)
    with saved_at_the_end(book):
        held(book)


def talk(book: SessionBook) -> None:
    run(book._chat.ask("first"))
    run(book._chat.regenerate())
    book._chat.clear()
    run(book._chat.ask("second"))
    book.keep_draft("half a thought")


def rescued(folder: Path) -> list[tuple[Session, list[str]]]:
    """What lies in the one folder that was made there."""
    (place,) = folder.iterdir()
    with closing(Store(place / "localspec" / "sessions.db")) as store:
        return [(one, [entry.content for entry in store.tree(one.id)]) for one in store.sessions()]


def test_what_cannot_be_saved_is_written_whole_and_can_be_gone_on_with(
    tmp_path: Path, temporary: Path, capsys: Said
) -> None:
    ended(unusable(tmp_path / "sessions.db"), talk)
    (second, last), (_, first) = rescued(temporary)
    assert (second.title, second.draft, len(last), len(first)) == ("second", "half a thought", 2, 3)
    (place,) = temporary.iterdir()
    said = " ".join(capsys.readouterr().err.split())
    assert "the end of this conversation is not saved where it belongs" in said
    assert f"XDG_DATA_HOME={place} localspec chat --resume" in said
    assert place.stat().st_mode & 0o777 == 0o700


def test_where_nothing_was_said_there_is_nothing_to_write(tmp_path: Path, temporary: Path, capsys: Said) -> None:
    def held(book: SessionBook) -> None:
        book.keep_draft("x")
        book.keep_draft("")

    ended(unusable(tmp_path / "sessions.db"), held)
    assert [*temporary.iterdir()] == []
    assert "the end of this conversation" not in capsys.readouterr().err


def test_the_next_folder_is_tried_where_one_will_not_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    ended(unusable(tmp_path / "sessions.db"), talk)
    assert len(rescued(home)) == 2


def test_a_rescue_that_fails_leaves_nothing_behind_and_promises_nothing(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    def refuse(_self: Database) -> NoReturn:
        raise StoreError("there is no room anywhere")

    monkeypatch.setattr(Database, "writing", refuse)
    monkeypatch.chdir(tmp_path)
    before = {*tmp_path.rglob("*")}
    ended(Store(tmp_path / "sessions.db"), talk)
    assert {*tmp_path.rglob("*")} == before
    assert capsys.readouterr().err.splitlines()[-1] == "localspec: the end of this conversation is not saved"


def test_the_conversation_that_is_left_last_is_the_one_to_resume(tmp_path: Path) -> None:
    file = tmp_path / "sessions.db"
    ended(Store(file), lambda book: run(book._chat.ask("older")))
    ended(Store(file), lambda book: run(book._chat.ask("newer")))

    def looked_into(book: SessionBook) -> None:
        book.open(book.store.find("older"))

    ended(Store(file), looked_into)
    with closing(Store(file)) as store:
        latest = store.latest()
        assert latest is not None
        assert latest.title == "older"
        assert [one.title for one in store.sessions()] == ["newer", "older"]  # what was said last


def test_opening_is_enough_whatever_the_end(tmp_path: Path) -> None:
    store = Store(tmp_path / "sessions.db")
    book = SessionBook(chat(n_predict=2), store)
    run(book._chat.ask("older"))
    second = SessionBook(chat(n_predict=2), store)
    run(second._chat.ask("newer"))
    second.open(store.find("older"))
    latest = store.latest()
    assert latest is not None
    assert latest.title == "older"


def test_leaving_without_a_word_makes_no_file(tmp_path: Path) -> None:
    ended(Store(tmp_path / "sessions.db"), lambda book: None)
    assert [*tmp_path.iterdir()] == []
