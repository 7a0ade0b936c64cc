"""What happens to the file: full disks, kills, damage, other versions, other processes."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest

from localspec.chat.store import Session, Store, new_id
from localspec.chat.store.database import Database
from localspec.chat.store.schema import MIGRATIONS
from localspec.errors import ExitCode, StoreError
from tests.chat.stores import chain, connections, told

WRITER = """
import sys
from pathlib import Path
from tests.chat.stores import chain, told
from localspec.chat.store import Store
store = Store(Path(sys.argv[1]))
session, parent = told(store, sys.argv[2], "start"), None
for number in range(int(sys.argv[3])):
    (entry,) = chain(f"{sys.argv[2]} {number} " + "x" * 5000)
    store.add(session.id, [entry], entry.id)
    print(number, flush=True)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "sessions.db"


def writer(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def contents(store: Store) -> set[str]:
    return {entry.content for session in store.sessions() for entry in store.tree(session.id)}


def columns(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [row[1] for row in connection.execute("PRAGMA table_info(sessions)")]


def test_only_the_owner_may_read(path: Path) -> None:
    store = Store(path)
    told(store, "t", "secret")
    there = [f"sessions.db{end}" for end in ("", "-shm", "-wal", ".lock")]
    assert sorted(os.listdir(path.parent)) == there
    assert [os.stat(path.parent / name).st_mode & 0o777 for name in there] == [0o600] * 4
    store.close()
    assert contents(store) == {"secret"}


def test_purged_text_is_in_no_file(path: Path) -> None:
    store = Store(path)
    session = told(store, "t", "a very particular secret")
    store.purge(session.id)
    store.close()
    assert b"particular" not in path.read_bytes()


# Nothing can be written


@pytest.mark.parametrize("pages", [40, 60])
def test_a_full_disk_loses_nothing_that_was_there(path: Path, pages: int, monkeypatch: pytest.MonkeyPatch) -> None:
    full: list[sqlite3.Connection] = []
    with monkeypatch.context() as patched:
        connections(patched, full.append)
        store = Store(path)
        session = told(store, "t", "before")
    full[-1].execute(f"PRAGMA max_page_count = {pages}")
    large = chain("x" * 400_000)
    for _ in range(2):
        with pytest.raises(StoreError, match="full") as caught:
            store.add(session.id, large, large[-1].id)
        assert caught.value.exit_code is ExitCode.RUNTIME
        assert str(path) in caught.value.message
        assert "Make room" in caught.value.hint
    assert contents(store) == {"before"}
    full[-1].execute("PRAGMA max_page_count = 100000")
    store.add(session.id, large, large[-1].id)
    assert contents(store) == {"before", "x" * 400_000}


@pytest.mark.skipif(os.geteuid() == 0, reason="no folder is read-only for root")
def test_a_folder_that_cannot_be_written(path: Path) -> None:
    path.parent.mkdir(mode=0o500)
    store = Store(path)
    with pytest.raises(StoreError, match="Permission denied"):
        store.sessions()
    path.parent.chmod(0o700)
    told(store, "t", "a")
    assert contents(store) == {"a"}


def test_a_place_that_can_be_no_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for place in (tmp_path / "file" / "sessions.db", tmp_path):
        store = Store(place)
        for use in (store.sessions, store.open, lambda store=store: store.begin(Session(new_id()))):
            with pytest.raises(StoreError, match=r"cannot be (read|opened|written)") as caught:
                use()
            assert caught.value.hint
    (tmp_path / "file").unlink()
    told(Store(tmp_path / "file" / "sessions.db"), "t", "a")  # and later it is possible


def test_a_lock_held_by_another_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(path)
    connections(monkeypatch, lambda one: one.execute("PRAGMA busy_timeout = 0"))
    session = told(store, "t", "a")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked") as caught:
            store.rename(session.id, "u")
        assert "Another process" in caught.value.hint
        assert [one.title for one in store.sessions()] == ["t"]  # reading goes on
    store.rename(session.id, "u")


def test_a_file_that_is_taken_away_is_begun_anew(path: Path) -> None:
    store = Store(path)
    told(store, "t", "a")
    os.rename(path, path.with_name("elsewhere"))
    told(store, "u", "b")
    assert contents(store) == {"b"}
    assert path.exists()


# Processes and threads


def test_a_writer_that_is_killed_loses_at_most_what_it_was_writing(path: Path) -> None:
    for round_ in range(3):
        with writer(path, f"round {round_}", 10_000) as process:
            assert process.stdout is not None
            for _ in range(5 * round_ + 2):
                process.stdout.readline()
            process.send_signal(signal.SIGKILL)
            said = len(process.stdout.read().splitlines()) + 5 * round_ + 2
        store = Store(path)
        session = store.find(f"round {round_}")
        numbers = {int(one.content.split()[2]) for one in store.tree(session.id) if one.content != "start"}
        assert set(range(said)) <= numbers <= set(range(said + 1))
        assert store.news() == []
        store.search("round")
        store.close()


def test_two_processes_write_and_nothing_is_lost(path: Path) -> None:
    with writer(path, "one", 40) as one, writer(path, "two", 40) as two:
        assert one.wait(60) == two.wait(60) == 0
    store = Store(path)
    assert {len(store.tree(session.id)) for session in store.sessions()} == {41}
    assert len(store.sessions()) == 2


def test_threads_share_a_store(path: Path) -> None:
    store = Store(path)
    threads = [Thread(target=told, args=(store, f"t{number}", "a", "b")) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.sessions()) == 8


# Damage


def cut(path: Path) -> None:
    os.truncate(path, 6000)


def overwrite(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096 : len(data) - 100] = os.urandom(len(data) - 4196)
    path.write_bytes(data)


def no_database(path: Path) -> None:
    path.write_bytes(b"not a database, " * 500)


@pytest.mark.parametrize("damage", [cut, overwrite, no_database])
def test_a_damaged_file_is_moved_aside(path: Path, damage: Callable[[Path], None]) -> None:
    store = Store(path)
    told(store, "t", "x" * 50_000)
    store.close()
    damage(path)
    broken = path.read_bytes()
    store = Store(path)
    assert store.sessions() == ()
    (line,) = store.news()
    assert store.news() == []
    (moved,) = path.parent.glob("sessions.db.corrupt-*")
    assert line == f"{path} was damaged: it was moved to {moved}, and a new one begun"
    assert moved.read_bytes() == broken
    told(store, "u", "a")
    store.close()
    again = Store(path)
    assert contents(again) == {"a"}
    assert again.news() == []


def test_a_second_damaged_file_does_not_replace_the_first(path: Path) -> None:
    path.parent.mkdir()
    for _ in range(3):
        no_database(path)
        with closing(Store(path)) as store:
            store.open()
    assert len({*path.parent.glob("sessions.db.corrupt-*")}) == 3


# Versions


def more(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE sessions ADD COLUMN folder TEXT")


def fails(connection: sqlite3.Connection) -> None:
    more(connection)
    raise sqlite3.OperationalError("database or disk is full")


def test_an_older_file_is_migrated_after_a_copy(path: Path) -> None:
    store = Store(path)
    told(store, "t", "a")
    with closing(Database(path, [*MIGRATIONS, more])) as database:
        database.open()
        assert database.rows("SELECT title, folder FROM sessions") == [("t", None)]
        (copy,) = path.parent.glob("sessions.db.format-*")
        assert database.news == [f"saved conversations were brought to a new format; the file as it was is {copy}"]
    assert "folder" not in columns(copy)
    assert copy.stat().st_mode & 0o777 == 0o600
    assert contents(Store(copy)) == {"a"}
    with closing(Database(path, [*MIGRATIONS, more])) as database:
        database.open()
        assert database.news == []


def test_a_migration_that_fails_changes_nothing(path: Path) -> None:
    told(Store(path), "t", "a")
    with closing(Database(path, [*MIGRATIONS, fails])) as database, pytest.raises(StoreError, match="full"):
        database.open()
    assert contents(Store(path)) == {"a"}
    assert "folder" not in columns(path)


def test_a_newer_file_is_refused_and_left_alone(path: Path) -> None:
    Database(path, [*MIGRATIONS, more]).open()
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"written by a newer localspec \(format 3, this one reads 2\)") as caught:
        Store(path).sessions()
    assert "Update localspec" in caught.value.hint
    assert path.read_bytes() == before


def test_the_database_of_another_program_is_left_alone(path: Path) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE precious (x)")
    with pytest.raises(StoreError, match="database of another program"):
        Store(path).sessions()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM precious").fetchone() == (0,)
