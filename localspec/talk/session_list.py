"""Saved sessions as a list to choose from: what stands in it, and what is done to one of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from localspec.chat.store import Session, Snippet, Store
from localspec.errors import UsageError
from localspec.talk.book import SessionBook
from localspec.text.printable import one_line

#: Places of one session that are shown.
MOST_PLACES = 3
#: Places that a search looks at, for every session of the list.
_PLACES_EACH = 4


@dataclass(frozen=True, slots=True)
class Listed:
    """A session, and the parts of its title and of its messages where something was found."""

    session: Session
    title: Snippet
    places: tuple[Snippet, ...] = ()


def listed(store: Store, text: str, most: int) -> list[Listed]:
    """The pinned first, then the newest first; with a text those that have it, the best first.

    Raises:
        StoreError: they cannot be read.
    """
    if not text.strip():
        return [Listed(one, Snippet(titled(one), ())) for one in store.sessions(most=most)]
    found: dict[str, Listed] = {}
    for hit in store.search(text, _PLACES_EACH * most):
        session = hit.session
        row = found.setdefault(session.id, Listed(session, Snippet(titled(session), ())))
        if hit.entry is None:
            found[session.id] = replace(row, title=hit.snippet)
        elif len(row.places) < MOST_PLACES:
            found[session.id] = replace(row, places=(*row.places, hit.snippet))
    return list(found.values())[:most]


def titled(session: Session) -> str:
    """Its title; of one that has none yet, what was typed for it."""
    return one_line(session.title) or (f"(unsent) {one_line(session.draft)[:60]}" if session.draft else "(untitled)")


def local(moment: str) -> str:
    """A saved time as the clock here shows it."""
    return f"{datetime.fromisoformat(moment).astimezone():%Y-%m-%d %H:%M}"


def sized(session: Session) -> str:
    return f"{session.questions} question{'' if session.questions == 1 else 's'}"


def renamed(book: SessionBook, session: Session, title: str) -> None:
    """Gives a session another title, be it the open one or not."""
    if session.id == book.session.id:
        book.rename(title)
    else:
        book.store.rename(session.id, title)


def brought_back(store: Store) -> Session:
    """The session that was deleted last is there again.

    Raises:
        UsageError: none is deleted.
    """
    session = store.last_deleted()
    if session is None:
        raise UsageError("no conversation is deleted", hint="/sessions lists those that are there.")
    store.restore(session.id)
    return session
