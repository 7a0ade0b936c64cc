"""Whether a conversation is saved, and which saved one it goes on with."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from localspec.chat.store import Session, Store
from localspec.cli.diagnostics import note
from localspec.errors import UsageError
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
    """What came of an answer is saved if the terminal goes away; what could not be saved before is tried once more."""
    with _hang_ups_wait():
        try:
            yield
        finally:
            saved = book.save()
            for line in book.news():
                note(line)
            if not saved:
                note("the end of this conversation is not saved")
            book.store.close()


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
