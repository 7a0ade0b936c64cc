"""What is typed and not sent is kept with its session, so that no end of this program loses it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from localspec.talk.book import SessionBook

#: Seconds after a key within which what was typed is kept.
INTERVAL = 0.5


class Drafts:
    """Texts on their way to the sessions they belong to, the newest of each. All of it belongs to the screen's thread;
    what is written is written in another, since a file may make a writer wait.

    Args:
        said: called in that other thread, after each time something was written.
    """

    def __init__(self, book: SessionBook, said: Callable[[], None]) -> None:
        self.session = book.session.id
        self._book = book
        self._said = said
        self._texts: dict[str, str] = {}
        self._some, self._soon = asyncio.Event(), asyncio.Event()

    def keep(self, text: str, *, soon: bool = False) -> None:
        """What belongs to this session now."""
        self._texts[self.session] = text
        self._some.set()
        if soon:
            self._soon.set()

    def move(self, session: str, left: str) -> None:
        """What is typed from now on belongs to another session; ``left`` stays with the one before."""
        self.keep(left, soon=True)
        self.session = session

    async def run(self) -> None:
        """Keeps texts until it is cancelled."""
        while True:
            await self._some.wait()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._soon.wait(), INTERVAL)
            self._some.clear()
            self._soon.clear()
            texts, self._texts = self._texts, {}
            await asyncio.to_thread(self._write_and_say, texts)

    def flush(self) -> None:
        """At the end: writes what waits, here and now."""
        texts, self._texts = self._texts, {}
        self._write(texts)

    def _write_and_say(self, texts: dict[str, str]) -> None:
        self._write(texts)
        self._said()

    def _write(self, texts: dict[str, str]) -> None:
        for session, text in texts.items():
            self._book.keep_draft(text, session)
