"""The file: opened, checked, migrated; written by one at a time; every failure an error of the tree."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import RLock
from typing import Any

from localspec.chat.store.schema import APPLICATION, MIGRATIONS, Migration
from localspec.chat.store.texts import decoded
from localspec.errors import StoreError

#: Seconds that a writer waits for another process that writes.
PATIENCE = 5.0
#: What SQLite keeps beside a file.
_BESIDE = ("", "-wal", "-shm")
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_HINTS = {
    sqlite3.SQLITE_FULL: "Make room on that disk; what is not written waits, and is tried again.",
    sqlite3.SQLITE_BUSY: "Another process writes to it; what is not written waits, and is tried again.",
    sqlite3.SQLITE_CORRUPT: "Start again: a damaged file is moved aside, and a new one begun.",
}
_HINT = "Check the folder, or set XDG_DATA_HOME to another one."


class Database:
    """A connection that threads may share. It is made when it is first needed, and again after that failed.

    Commits are not forced to the disk (``synchronous=NORMAL``): what was committed survives the end of this process,
    however it ends. A power cut may take the last seconds and damages nothing. A flush for each half-typed draft would
    hold up the screen and wake the disk for little.

    Args:
        path: the file. Where it is missing it is made, readable by its owner alone.
        migrations: from an empty file to today's tables.
    """

    def __init__(self, path: Path, migrations: Sequence[Migration] = MIGRATIONS) -> None:
        self.path = path
        #: Lines for the user: what was done to the file.
        self.news: list[str] = []
        self._migrations = migrations
        self._lock = RLock()
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None

    def rows(self, query: str, parameters: Sequence[object] = ()) -> list[Any]:
        """All rows of a query.

        Raises:
            StoreError: the file cannot be opened or read.
        """
        with self._lock, self._failures("read"):
            return self._open().execute(query, parameters).fetchall()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction: all that is done in it, or nothing.

        Raises:
            StoreError: the file cannot be opened or written; nothing was.
        """
        with self._lock, self._failures("written"):
            connection = self._open()
            connection.execute("BEGIN IMMEDIATE")  # at once, or two that have read could not both write
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:  # a full disk ends some by itself
                    connection.execute("ROLLBACK")
                raise

    def open(self) -> None:
        """Opens the file now, so that what is wrong with it is known.

        Raises:
            StoreError: it cannot be opened, is of a newer localspec, or another program's.
        """
        with self._lock, self._failures("opened"):
            self._open()

    def close(self) -> None:
        """The next use opens the file again."""
        with self._lock:
            if self._connection is not None:
                with suppress(sqlite3.Error):
                    self._connection.close()
            self._connection = None

    @contextmanager
    def _failures(self, what: str) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest says which kind of it
            reason = getattr(error, "strerror", None) or error
            hint = _HINTS.get(code, _HINT)
            raise StoreError(f"{self.path} cannot be {what}: {reason}", hint=hint) from error

    # -- opening

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None and self._file != _identity(self.path):
            self.close()  # moved away or removed under us: what is written now must not vanish with it
        if self._connection is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with _alone(self.path):
                self._connection = self._checked()
            self._file = _identity(self.path)
        return self._connection

    def _checked(self) -> sqlite3.Connection:
        """A connection to a sound file with today's tables."""
        connection = None
        try:
            connection = _connect(self.path)
            if connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                raise _Damaged
            self._migrate(connection)
        except BaseException as error:
            if connection is not None:
                connection.close()
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if not isinstance(error, _Damaged) and code not in _DAMAGED:
                raise
            self._move_aside()
            connection = _connect(self.path)
            self._migrate(connection)
        connection.execute("PRAGMA journal_mode = WAL")  # of our own files alone: it is written into them
        return connection

    def _migrate(self, connection: sqlite3.Connection) -> None:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables and application != APPLICATION:
            raise StoreError(f"{self.path} is the database of another program", hint=_HINT)
        if version > len(self._migrations):
            raise StoreError(
                f"{self.path} was written by a newer localspec (format {version}, this one reads"
                f" {len(self._migrations)})",
                hint="Update localspec, or set XDG_DATA_HOME to another folder.",
            )
        if version == len(self._migrations):
            return
        if tables:
            self._back_up(connection, version)
        connection.execute("BEGIN EXCLUSIVE")
        try:
            for migration in self._migrations[version:]:
                migration(connection)
            connection.execute(f"PRAGMA user_version = {len(self._migrations)}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _back_up(self, connection: sqlite3.Connection, version: int) -> None:
        copy = _unused(self.path.with_name(f"{self.path.name}.format-{version}"))
        _create(copy)
        target = sqlite3.connect(copy)
        try:
            connection.backup(target)
        finally:
            target.close()
        self.news.append(f"saved conversations were brought to a new format; the file as it was is {copy}")

    def _move_aside(self) -> None:
        moved = _unused(self.path.with_name(f"{self.path.name}.corrupt-{datetime.now(UTC):%Y%m%d-%H%M%S}"))
        for end in _BESIDE:
            with suppress(FileNotFoundError):
                os.rename(f"{self.path}{end}", f"{moved}{end}")
        self.news.append(f"{self.path} was damaged: it was moved to {moved}, and a new one begun")


class _Damaged(Exception):
    """The file is a database, and not a sound one."""


def _connect(path: Path) -> sqlite3.Connection:
    if not path.exists():
        _create(path)
    # Threads take turns by the lock of `Database`.
    connection = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
    try:
        connection.text_factory = decoded
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA secure_delete = ON")  # purged is gone
    except BaseException:
        connection.close()
        raise
    return connection


def _create(path: Path) -> None:
    """An empty file for its owner's eyes; what SQLite keeps beside it gets the same rights.

    A file that is there is never opened here: closing it would give up the locks that this process has on it.
    """
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _unused(path: Path) -> Path:
    number, free = 1, path
    while os.path.lexists(free):
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process at a time opens the file: two that find it damaged would move away each other's new one."""
    lock = os.open(f"{path}.lock", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
