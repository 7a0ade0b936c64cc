"""Whether a conversation is saved, and which saved one it goes on with."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import NoReturn

from localspec.chat.store import MessageTree, Session, Store, now
from localspec.cli.diagnostics import note
from localspec.errors import StoreError, UsageError
from localspec.options import Values
from localspec.talk.book import SessionBook


def saves(values: Values, *, at_terminal: bool) -> bool:
    """At a terminal a conversation is saved unless that is not wanted, over pipes if it goes on with a saved one."""
    return (at_terminal and values["save_session"]) or values["resume"] or values["session"] is not None


def wanted(values: Values, store: Store | None) -> Session | None:
    """The session that is asked for. That there is none is known before a model is loaded.

    Args:
        store: ``None`` where nothing is saved: in a single question.

    Raises:
        UsageError: there is none, or this is a single question.
        StoreError: sessions cannot be read.
    """
    name = values["session"]
    if name is None and not values["resume"]:
        return None
    if store is None:
        flag = "--resume" if name is None else "--session"
        raise UsageError(f"{flag} is given, but this is a single question", hint="Chat at a terminal, without -st.")
    if name is not None:
        return store.find(name)
    latest = store.latest()
    if latest is None:
        for line in store.news():  # perhaps there were some, in a damaged file
            note(line)
        raise UsageError("no conversation is saved yet", hint="Leave out --resume.")
    return latest


@contextmanager
def saved_at_the_end(book: SessionBook) -> Iterator[None]:
    """What came of an answer is saved if the terminal goes away; what could not be saved before is tried once more,
    and then written elsewhere. --resume goes on with what was left."""
    with _hang_ups_wait():
        try:
            yield
        finally:
            if book.save():
                book.note_use()
            for line in book.news():
                note(line)
            if unsaved := book.unsaved():
                note(f"the end of this conversation is not saved{_rescued(unsaved)}")
            book.store.close()


def _rescued(sessions: Iterable[tuple[Session, MessageTree]]) -> str:
    """Writes sessions to a folder of their own; says how they are gone on with, or nothing if no folder will do."""
    places: tuple[Callable[[], object], ...] = (tempfile.gettempdir, Path.home, Path.cwd)
    for place in places:
        try:
            folder = Path(tempfile.mkdtemp(prefix="localspec-", dir=str(place())))
        except (OSError, RuntimeError):  # there is no such place, or nothing can be written there
            continue
        try:
            with closing(Store(folder / "localspec" / "sessions.db")) as store:
                for session, tree in sessions:
                    store.take_in(replace(session, updated=now()), tree)
        except StoreError:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            return f" where it belongs; XDG_DATA_HOME={folder} localspec chat --resume goes on with it"
    return ""


class _HungUp(BaseException):
    """The terminal is gone."""


@contextmanager
def _hang_ups_wait() -> Iterator[None]:
    """SIGHUP ends this process as it would have, once everything here is left."""
    before = signal.getsignal(signal.SIGHUP)
    if before is signal.SIG_IGN:  # nohup
        yield
        return
    signal.signal(signal.SIGHUP, _hang_up)
    try:
        yield
    except _HungUp:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def _hang_up(_number: int, _frame: FrameType | None) -> NoReturn:
    raise _HungUp
