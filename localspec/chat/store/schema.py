"""The tables, and how an older file becomes one of today."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

Migration = Callable[[sqlite3.Connection], None]

#: Marks a file as ours, where SQLite has a place for that: "lspc".
APPLICATION = 0x6C737063


def _first(connection: sqlite3.Connection) -> None:
    """Sessions and messages; the index of words follows the messages by triggers.

    ``number`` is the order in which messages came. No message refers to another by a rule of the database: a branch
    that another process purged must not keep this one from saving what was said since.
    """
    for statement in (
        f"PRAGMA application_id = {APPLICATION}",
        """CREATE TABLE sessions (
            id TEXT PRIMARY KEY, title NOT NULL, created TEXT NOT NULL, updated TEXT NOT NULL,
            pinned INTEGER NOT NULL DEFAULT 0, deleted TEXT, system, leaf TEXT,
            settings TEXT NOT NULL DEFAULT '{}', draft NOT NULL DEFAULT '')""",
        """CREATE TABLE messages (
            number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, session TEXT NOT NULL, parent TEXT,
            role TEXT NOT NULL, content NOT NULL, thinking NOT NULL DEFAULT '', stopped INTEGER NOT NULL DEFAULT 0,
            created TEXT NOT NULL, params TEXT NOT NULL DEFAULT '{}', stats TEXT NOT NULL DEFAULT '{}')""",
        "CREATE INDEX messages_of ON messages (session, number)",
        "CREATE INDEX sessions_by_time ON sessions (updated)",
        """CREATE VIRTUAL TABLE words USING fts5 (
            content, content = messages, content_rowid = number,
            tokenize = 'unicode61 remove_diacritics 2', prefix = '2 3')""",
        """CREATE TRIGGER message_added AFTER INSERT ON messages BEGIN
            INSERT INTO words (rowid, content) VALUES (new.number, new.content); END""",
        """CREATE TRIGGER message_gone AFTER DELETE ON messages BEGIN
            INSERT INTO words (words, rowid, content) VALUES ('delete', old.number, old.content); END""",
        """CREATE TRIGGER message_changed AFTER UPDATE OF content ON messages BEGIN
            INSERT INTO words (words, rowid, content) VALUES ('delete', old.number, old.content);
            INSERT INTO words (rowid, content) VALUES (new.number, new.content); END""",
    ):
        connection.execute(statement)


def _used(connection: sqlite3.Connection) -> None:
    """When a session was last opened or left, which writes no message."""
    connection.execute("ALTER TABLE sessions ADD COLUMN used TEXT NOT NULL DEFAULT ''")


#: The n-th makes version n + 1 of version n. What was released is never changed: new ones are added.
MIGRATIONS: tuple[Migration, ...] = (_first, _used)
