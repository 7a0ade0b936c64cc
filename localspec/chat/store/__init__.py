"""Conversations that are kept: sessions as trees of messages, in one SQLite file."""

from __future__ import annotations

from localspec.chat.store.entries import Entry, Hit, Session, Snippet, new_id, now, title_of
from localspec.chat.store.store import Store, sessions_file
from localspec.chat.store.tree import MessageTree

__all__ = [
    "Entry",
    "Hit",
    "MessageTree",
    "Session",
    "Snippet",
    "Store",
    "new_id",
    "now",
    "sessions_file",
    "title_of",
]
