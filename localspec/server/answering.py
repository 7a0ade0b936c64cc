"""From a wish to a response: whole, or as a stream of events. A client that leaves takes its answers along."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from localspec.report import finite
from localspec.server.choice import Choice
from localspec.server.desk import Answers, Desk
from localspec.server.errors import ApiError
from localspec.server.forms import Form
from localspec.server.wishes import Wish
from localspec.types import Event, Failed

T = TypeVar("T")
#: A client that does not read for so long is gone.
_STUCK = 60.0


class Gone(Exception):
    """The client has left."""


@dataclass(frozen=True, slots=True)
class Limits:
    """``body_bytes`` of a request, which may take ``body_s`` to arrive; an answer may take ``answer_s``, in the queue
    and out of it; after ``ping_s`` without anything to say a stream says that it lives."""

    body_bytes: int = 16 << 20
    body_s: float = 30.0
    answer_s: float = 3600.0
    ping_s: float = 15.0


class Json(Response):
    """JSON, with ``null`` for what it has no number for."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return dumped(content).encode()


def dumped(record: Any) -> str:
    return json.dumps(finite(record), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


async def respond(desk: Desk, wish: Wish, form: Form, limits: Limits, receive: Receive) -> Response:
    """The response to a wish.

    Raises:
        ApiError: there is no place, or the answer failed before anything was sent.
        Gone: the client has left; its answers are cancelled.
    """
    answering = _Answering(desk, wish, form, limits)
    try:
        if wish.stream:
            await while_there(receive, answering.first())
            return EventStream(answering)
        return Json(await while_there(receive, answering.whole()))
    except BaseException:
        answering.close()
        raise


class _Answering:
    """The choices of one wish, until all are over or the time is up."""

    def __init__(self, desk: Desk, wish: Wish, form: Form, limits: Limits) -> None:
        self._desk = desk
        self._wish = wish
        self._form = form
        self._limits = limits
        self._until = asyncio.get_running_loop().time() + limits.answer_s
        self._choices = [Choice(index, request, wish) for index, request in enumerate(wish.requests)]
        self._answers: Answers = desk.ask(wish.requests, wish.slot)
        self._taken: list[tuple[int, Event]] = []

    def close(self) -> None:
        self._desk.leave(self._answers)

    async def whole(self) -> Any:
        try:
            while not self._answers.over:
                for index, event in await self._take():
                    self._choices[index].take(event)
                self._check()
        finally:
            self.close()
        return self._form.whole(self._choices)

    async def first(self) -> None:
        """Waits for the first news, so that a request which cannot be honoured gets its status; but no longer than a
        stream may be silent."""
        self._taken = await self._take()
        for _, event in self._taken:
            if isinstance(event, Failed):
                raise ApiError.of(event, self._wish.source)

    async def events(self) -> AsyncIterator[str]:
        """The stream; what fails now is its last event."""
        yield self._told(self._form.opening(self._choices))
        try:
            yield self._news(self._taken)
            while not self._answers.over:
                taken = await self._take()
                yield self._news(taken) if taken else ": still at it\n\n"
                self._check()
            yield self._told(self._form.closing(self._choices)) + self._form.last
        except ApiError as error:
            yield self._failure(error)
        finally:
            self.close()

    def _news(self, taken: Sequence[tuple[int, Event]]) -> str:
        records: list[dict[str, Any]] = []
        for index, event in taken:
            choice = self._choices[index]
            delta = choice.take(event)
            if delta is not None:
                records += self._form.delta(choice, delta)
            if choice.finished is not None:
                records += self._form.end(choice)
        return self._told(records)

    async def _take(self) -> list[tuple[int, Event]]:
        left = self._until - asyncio.get_running_loop().time()
        if left <= 0:
            raise ApiError(504, f"the answer took more than {self._limits.answer_s:g} seconds", code="timeout")
        return await self._answers.take(min(left, self._limits.ping_s))

    def _check(self) -> None:
        failed = next((choice.failed for choice in self._choices if choice.failed is not None), None)
        if failed is not None:
            raise ApiError.of(failed, self._wish.source)

    def _told(self, records: Sequence[dict[str, Any]]) -> str:
        return "".join(self._line(record) for record in records)

    def _line(self, record: dict[str, Any]) -> str:
        name = f"event: {record['type']}\n" if self._form.named else ""
        return f"{name}data: {dumped(record)}\n\n"

    def _failure(self, error: ApiError) -> str:
        if self._form.named:
            return self._line({"type": "error", "code": error.code, "message": error.message, "param": error.param})
        return self._line(error.record)


class EventStream(Response):
    """Server-sent events, until they end, or the client leaves or no longer reads."""

    media_type = "text/event-stream"

    def __init__(self, answering: _Answering) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._answering = answering

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await while_there(receive, self._send(send))
        except (Gone, TimeoutError):
            pass
        finally:
            self._answering.close()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for text in self._answering.events():
            if text:
                await _sent(send, {"type": "http.response.body", "body": text.encode(), "more_body": True})
        await _sent(send, {"type": "http.response.body", "body": b"", "more_body": False})


async def _sent(send: Callable[[Message], Awaitable[None]], message: Message) -> None:
    async with asyncio.timeout(_STUCK):
        await send(message)


async def while_there(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``, which is given up when the client leaves.

    Raises:
        Gone: it has left.
    """
    working, watching = asyncio.create_task(work), asyncio.create_task(_departure(receive))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Gone
        return working.result()
    finally:
        for task in (working, watching):
            task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


async def _departure(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
