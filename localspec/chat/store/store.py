"""The sessions on this machine: listed, found, written message by message."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from localspec.chat.conversation import Turn
from localspec.chat.store.database import Database
from localspec.chat.store.entries import Entry, Hit, Session, now
from localspec.chat.store.search import like, places_of, places_of_words, query_of, snippet
from localspec.chat.store.texts import as_json, from_json, restored, stored
from localspec.chat.store.tree import MessageTree
from localspec.errors import UsageError
from localspec.types import Message

_SESSION = """s.id, s.title, s.created, s.updated, s.pinned, s.deleted, s.system, s.leaf, s.settings, s.draft,
    (SELECT count(*) FROM messages WHERE session = s.id AND role = 'user')"""
_ENTRY = "id, parent, role, content, thinking, stopped, created, params, stats"
#: Sessions named in an error.
_NAMED = 4


def sessions_file() -> Path:
    """Where sessions are kept unless somebody says otherwise."""
    from platformdirs import user_data_path

    return user_data_path("localspec", appauthor=False) / "sessions.db"


class Store:
    """Sessions in one file. Every method is one transaction, and may be called from any thread.

    Writing the same entry or session twice is the same as once. Each change names what it changes and nothing else, so
    that two processes that write never undo each other.

    Raises:
        StoreError: from every method: the file cannot be opened, read or written; nothing has changed. What failed may
            be tried again.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._database = Database(sessions_file() if path is None else path)

    @property
    def path(self) -> Path:
        return self._database.path

    def open(self) -> None:
        """Opens the file now, and not when it is first needed."""
        self._database.open()

    def close(self) -> None:
        self._database.close()

    def news(self) -> list[str]:
        """Lines for the user that were not taken yet: what was done to the file itself."""
        news, self._database.news = self._database.news, []
        return news

    # -- sessions

    def sessions(self, *, deleted: bool = False, most: int = -1) -> tuple[Session, ...]:
        """All that hold something, the pinned first, then the newest first; or those that wait to be purged.

        Args:
            most: no more than so many; negative: all.
        """
        which = "s.deleted IS NOT NULL" if deleted else "s.deleted IS NULL"
        return self._sessions(f"{which} ORDER BY s.pinned DESC, s.updated DESC, s.rowid DESC LIMIT ?", most)

    def last_deleted(self) -> Session | None:
        """The session that was put aside last."""
        found = self._sessions("s.deleted IS NOT NULL ORDER BY s.deleted DESC, s.rowid DESC LIMIT 1")
        return found[0] if found else None

    def latest(self) -> Session | None:
        """The session that was written to, opened or left last."""
        found = self._sessions("s.deleted IS NULL ORDER BY max(s.updated, s.used) DESC, s.rowid DESC LIMIT 1")
        return found[0] if found else None

    def session(self, session: str) -> Session | None:
        """The session of this id, deleted or not."""
        rows = self._database.rows(f"SELECT {_SESSION} FROM sessions s WHERE s.id = ?", (session,))
        return _session(rows[0]) if rows else None

    def find(self, name: str) -> Session:
        """The session of this title, whatever the case, or the only one whose title or id begins so.

        Raises:
            UsageError: there is none, or there are several; they are named.
        """
        there, wanted = self.sessions(), name.casefold()
        found = [one for one in there if wanted in (one.title.casefold(), one.id)]
        found = found or [one for one in there if one.title.casefold().startswith(wanted) or one.id.startswith(wanted)]
        if len(found) == 1 and wanted:
            return found[0]
        if not found or not wanted:
            raise UsageError(f"there is no saved conversation {name:.60}", hint="/sessions lists them, or finds one.")
        some = ", ".join(f"{one.id[:8]} ({one.title})" for one in found[:_NAMED])
        more = "" if len(found) <= _NAMED else f", and {len(found) - _NAMED} more"
        raise UsageError(f"{len(found)} conversations are called {name:.60}: {some}{more}", hint="Name one by its id.")

    def begin(self, session: Session) -> None:
        """Writes a new session. Of one that is there only a missing title is filled in."""
        with self._database.writing() as connection:
            _begin(connection, session)

    def rename(self, session: str, title: str) -> None:
        self._set(session, "title", stored(title))

    def pin(self, session: str, pinned: bool = True) -> None:
        self._set(session, "pinned", pinned)

    def set_system(self, session: str, system: str | None) -> None:
        self._set(session, "system", _maybe(system))

    def set_settings(self, session: str, settings: Mapping[str, Any]) -> None:
        self._set(session, "settings", as_json(settings))

    def set_draft(self, session: str, text: str) -> None:
        """Keeps text that was typed and not sent; it is read back with the session."""
        self._set(session, "draft", stored(text))

    def set_leaf(self, session: str, leaf: str | None) -> None:
        """The session goes on after this message."""
        self._set(session, "leaf", leaf)

    def note_use(self, session: str) -> None:
        """The session is opened or left now; its place in lists is that of its last message."""
        self._set(session, "used", now())

    def delete(self, session: str) -> None:
        """Puts a session aside: `restore` brings it back, `purge` ends it."""
        self._set(session, "deleted", now())

    def restore(self, session: str) -> None:
        self._set(session, "deleted", None)

    def purge(self, session: str) -> None:
        """Removes a session and all that was said in it, for good."""
        with self._database.writing() as connection:
            connection.execute("DELETE FROM messages WHERE session = ?", (session,))
            connection.execute("DELETE FROM sessions WHERE id = ?", (session,))
            connection.execute("INSERT INTO words (words) VALUES ('optimize')")  # its words leave the index, too

    # -- messages

    def add(self, session: str, entries: Iterable[Entry], leaf: str) -> None:
        """Writes messages, each after its parent, and goes on after ``leaf``. A deleted session comes back by it."""
        with self._database.writing() as connection:
            _add(connection, session, entries, leaf, now())

    def take_in(self, session: Session, entries: Iterable[Entry]) -> None:
        """Writes a session with all its messages, each after its parent. Of one that is there, what is missing."""
        with self._database.writing() as connection:
            _begin(connection, session)
            _add(connection, session.id, entries, session.leaf, session.updated)

    def tree(self, session: str) -> MessageTree:
        """All messages of a session."""
        query = f"SELECT {_ENTRY} FROM messages WHERE session = ? ORDER BY number"
        return MessageTree(_entry(row) for row in self._database.rows(query, (session,)))

    # -- search

    def search(self, text: str, limit: int = 50) -> tuple[Hit, ...]:
        """Titles with this text, then messages with all its words, the best first; the last word may be unfinished.
        Where no message has these words, those that hold the text as it is: signs, and languages without spaces.
        No text is an error."""
        pattern = like(text)
        if not pattern:
            return ()
        titled = self._sessions("s.deleted IS NULL AND s.title LIKE ? ESCAPE '\\' ORDER BY s.updated DESC", pattern)
        hits = [Hit(one, None, snippet(one.title, places_of(text))) for one in titled]
        hits += self._by_words(text, limit) or self._hits(
            "m.content LIKE ? ESCAPE '\\' AND s.deleted IS NULL ORDER BY m.number DESC LIMIT ?",
            (pattern, limit),
            places_of(text),
        )
        return tuple(hits[:limit])

    def _by_words(self, text: str, limit: int) -> list[Hit]:
        if not (query := query_of(text)):
            return []
        found = (
            "m.number = words.rowid AND words MATCH ? AND s.deleted IS NULL ORDER BY words.rank, m.number DESC LIMIT ?"
        )
        return self._hits(found, (query, limit), places_of_words(text), tables="words, messages m")

    def _hits(
        self, where: str, parameters: tuple[object, ...], places: re.Pattern[str], tables: str = "messages m"
    ) -> list[Hit]:
        query = f"SELECT {_SESSION}, m.id, m.content FROM {tables} JOIN sessions s ON s.id = m.session WHERE {where}"
        rows = self._database.rows(query, parameters)
        return [Hit(_session(row), row[-2], snippet(restored(row[-1]), places)) for row in rows]

    # -- rows

    def _sessions(self, where: str, *parameters: object) -> tuple[Session, ...]:
        held = "(s.draft != '' OR EXISTS (SELECT 1 FROM messages WHERE session = s.id))"
        query = f"SELECT {_SESSION} FROM sessions s WHERE {held} AND {where}"
        return tuple(_session(row) for row in self._database.rows(query, parameters))

    def _set(self, session: str, column: str, value: object) -> None:
        with self._database.writing() as connection:
            connection.execute(f"UPDATE sessions SET {column} = ? WHERE id = ?", (value, session))


def _begin(connection: sqlite3.Connection, session: Session) -> None:
    made = session.created or now()
    connection.execute(
        """INSERT INTO sessions (id, title, created, updated, pinned, system, settings, draft)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET title = excluded.title WHERE title = ''""",
        (
            *(session.id, stored(session.title), made, session.updated or made, session.pinned),
            *(_maybe(session.system), as_json(session.settings), stored(session.draft)),
        ),
    )


def _add(
    connection: sqlite3.Connection, session: str, entries: Iterable[Entry], leaf: str | None, updated: str
) -> None:
    connection.executemany(
        f"INSERT OR IGNORE INTO messages (session, {_ENTRY}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [(session, *_row(entry)) for entry in entries],
    )
    connection.execute(
        "UPDATE sessions SET leaf = ?, updated = ?, deleted = NULL WHERE id = ?", (leaf, updated, session)
    )


def _maybe(text: str | None) -> str | bytes | None:
    return None if text is None else stored(text)


def _session(row: tuple[Any, ...]) -> Session:
    name, title, created, updated, pinned, deleted, system, leaf, settings, draft, questions = row[:11]
    return Session(
        name,
        restored(title),
        created,
        updated,
        bool(pinned),
        deleted,
        None if system is None else restored(system),
        leaf,
        from_json(settings),
        restored(draft),
        questions,
    )


def _row(entry: Entry) -> tuple[object, ...]:
    turn = entry.turn
    return (
        *(entry.id, entry.parent, entry.role, stored(entry.content), stored(turn.thinking), turn.stopped),
        *(entry.created, as_json(entry.params), as_json(entry.stats)),
    )


def _entry(row: tuple[Any, ...]) -> Entry:
    name, parent, role, content, thinking, stopped, created, params, stats = row
    turn = Turn(Message(role, restored(content)), restored(thinking), bool(stopped))
    return Entry(name, parent, turn, created, from_json(params), from_json(stats))
