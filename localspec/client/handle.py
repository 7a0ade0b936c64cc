"""What ``submit`` gives back for an answer that a server makes: its events, as an iterator."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from threading import Thread

from localspec.client import counters
from localspec.client.course import Course
from localspec.client.dialect import Body
from localspec.client.line import Line
from localspec.client.site import Site
from localspec.client.sse import events, lines
from localspec.client.web import Broken
from localspec.errors import LocalspecError
from localspec.host.inbox import Inbox
from localspec.types import Event, Failed, SpecStats, Started


class RemoteHandle:
    """The events of one request. Leaving the loop early cancels the request; a second loop gives what is left, and
    the last event in any case. One thread at a time may iterate.

    A thread of its own reads what the server sends, so that nobody who steers the answer has to wait for the server.

    Attributes:
        fault: what it failed by, when it has.

    Args:
        asked: path and body.
        course: what becomes of the stream.
        cancelled: is told, by whoever cancels, that `end` is to be called.
    """

    def __init__(
        self,
        number: int,
        site: Site,
        asked: tuple[str, Body],
        course: Course,
        *,
        counts: bool,
        cancelled: Callable[[RemoteHandle], None],
    ) -> None:
        self.number = number
        self.fault: LocalspecError | None = None
        self._site = site
        self._path, self._body = asked
        self._course = course
        self._counts = counts
        self._cancelled = cancelled
        self._line = Line()
        self._inbox = Inbox()
        Thread(target=self._read, name=f"answer-{number}", daemon=True).start()

    def __iter__(self) -> Iterator[Event]:
        try:
            yield from self._inbox.events()
        finally:
            self.cancel()

    def cancel(self) -> None:
        """From any thread, and from a signal handler: `Finished` with reason ``cancelled`` follows at once."""
        if not self._inbox.over:
            self._cancelled(self)

    def end(self) -> None:
        """What `cancel` asks for: hangs up. Takes locks, and so is not for signal handlers."""
        self._line.cut()
        self._inbox.put(self._course.finished("cancelled"))

    def grant(self, steps: int | None) -> None:
        """Nothing: a server makes its steps by itself, and requests that want to be asked are refused."""

    # -- in a thread of its own

    def _read(self) -> None:
        try:
            guesses = self._stream()
        except LocalspecError as error:
            self._fail(error)
        except Exception as error:
            self._fail(LocalspecError(f"{type(error).__name__}: {error}"))
        else:
            self._inbox.put(self._course.finished(guesses=guesses))

    def _fail(self, error: LocalspecError) -> None:
        if not self._line.is_cut:
            self.fault = error
            self._inbox.put(Failed.of(self.number, error))

    def _stream(self) -> SpecStats | None:
        """Reads the answer; what is known of its guesses from beside it.

        Raises:
            LocalspecError: it is not all there.
        """
        before = counters.read(self._site) if self._counts else None
        with self._site.stream(self._path, self._body, self._line.trace) as chunks:
            self._inbox.put(Started(self.number, 0, 0, self._body["seed"]))
            arrivals = ((time.perf_counter(), data) for data in chunks)
            for now, event in events(lines(arrivals)):
                if (tokens := self._course.take(now, event)) is not None:
                    self._inbox.put(tokens)
        if not self._course.whole:
            raise Broken(f"{self._site.url} ends its answer in the middle", hint="See the server's log.")
        return None if before is None else counters.read(self._site).since(before)
