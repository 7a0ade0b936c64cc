"""Saved sessions for tests, and what a connection is asked."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from localspec.chat.conversation import Turn
from localspec.chat.store import Entry, Session, Store, new_id, now
from localspec.types import Message

ROLES = ("user", "assistant")


def chain(*texts: str, parent: str | None = None) -> list[Entry]:
    """Questions and answers in turn, each after the one before."""
    entries: list[Entry] = []
    for number, text in enumerate(texts):
        entries.append(Entry(new_id(), parent, Turn(Message(ROLES[number % 2], text)), now()))
        parent = entries[-1].id
    return entries


def told(store: Store, title: str, *texts: str) -> Session:
    """A session of one branch, as it is read back."""
    session, entries = Session(new_id(), title), chain(*texts)
    store.begin(session)
    store.add(session.id, entries, entries[-1].id)
    found = store.session(session.id)
    assert found is not None
    return found


def connections(monkeypatch: pytest.MonkeyPatch, change: Callable[[sqlite3.Connection], object]) -> None:
    """Every connection is changed as soon as it is made."""
    connect = sqlite3.connect

    def changed(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **options)
        change(connection)
        return connection

    monkeypatch.setattr(sqlite3, "connect", changed)
