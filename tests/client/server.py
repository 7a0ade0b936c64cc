"""A server that does as it is told: answers well, late, in pieces, wrongly, or dies."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.http import answering

#: Answers one POST, by what was asked.
Behaviour = Callable[["Reply", dict[str, Any]], None]
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


class Reply:
    """What a behaviour does with a request."""

    def __init__(self, handler: BaseHTTPRequestHandler, gone: threading.Event) -> None:
        self._handler = handler
        #: The server is about to end; who waits must not wait any longer.
        self.gone = gone
        self._begun = False

    def error(self, status: int, message: str = "no", **headers: str) -> None:
        self.json({"error": {"message": message}}, status, **headers)

    def json(self, found: object, status: int = 200, **headers: str) -> None:
        self.raw(json.dumps(found).encode(), status, **headers)

    def raw(self, body: bytes, status: int = 200, **headers: str) -> None:
        self._handler.send_response(status)
        for name, value in {"Content-Length": str(len(body)), "Connection": "close", **headers}.items():
            self._handler.send_header(name.replace("_", "-"), value)
        self._handler.end_headers()
        self._handler.wfile.write(body)

    def events(self, *events: object) -> None:
        """Sends them as parts of a stream whose length nobody knows before."""
        if not self._begun:
            self._handler.send_response(200)
            self._handler.send_header("Content-Type", "text/event-stream")
            self._handler.send_header("Transfer-Encoding", "chunked")
            self._handler.send_header("Connection", "close")
            self._handler.end_headers()
            self._begun = True
        for event in events:
            data = f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n".encode()
            self._handler.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self._handler.wfile.flush()

    def end(self) -> None:
        self._handler.wfile.write(b"0\r\n\r\n")

    def hang_up(self) -> None:
        self._handler.connection.close()


@dataclass
class Script:
    """How a server is. ``answers`` are used up one a request, the last one for all that follow."""

    answers: list[Behaviour]
    owner: str = "someone"
    model: Mapping[str, Any] = field(default_factory=dict)
    pages: Mapping[str, Any] = field(default_factory=dict)
    others: tuple[str, ...] = ()  # models
    lists: bool = True  # models as it should
    asked: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    most_at_once: int = 0
    now: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


def delta(**parts: object) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": parts, "finish_reason": None}]}


def stop(reason: str = "stop", **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}], **more}


def says(*texts: str, thinking: str = "", **last: Any) -> Behaviour:
    """Streams these texts, whichever of the two protocols asks; ``last`` is in the last object."""

    def answer(reply: Reply, body: dict[str, Any]) -> None:
        if thinking:
            reply.events(delta(reasoning_content=thinking))
        chat = "messages" in body
        reply.events(*(delta(content=text) if chat else {"choices": [{"text": text}]} for text in texts))
        reply.events(stop(**last), {"choices": [], "usage": _usage(len(texts))}, "[DONE]")
        reply.end()

    return answer


def _usage(n: int) -> dict[str, Any]:
    return {"prompt_tokens": 7, "completion_tokens": n, "prompt_tokens_details": {"cached_tokens": 3}}


def echoes(reply: Reply, body: dict[str, Any]) -> None:
    """Says the question again."""
    question = body["messages"][-1]["content"] if "messages" in body else body["prompt"]
    says(f"<{question}>")(reply, body)


def busy(after: str = "0", status: int = 503) -> Behaviour:
    return lambda reply, _body: reply.error(status, "the queue is full", Retry_After=after)


def fails(status: int, message: str = "no") -> Behaviour:
    return lambda reply, _body: reply.error(status, message)


def dies(reply: Reply, body: dict[str, Any]) -> None:
    """In the middle of its answer."""
    reply.events(delta(content="half"))
    reply.hang_up()


def babbles(reply: Reply, body: dict[str, Any]) -> None:
    """What is no answer of any protocol."""
    reply.raw(b"<html>It works!</html>")


def stutters(reply: Reply, body: dict[str, Any]) -> None:
    """Garbage in the middle of a good answer."""
    reply.events(delta(content="good"), "{no json")
    reply.end()


def regrets(reply: Reply, body: dict[str, Any]) -> None:
    """An error in the middle of a good answer."""
    reply.events(delta(content="good"), {"error": {"code": 500, "message": "out of memory."}})
    reply.end()


def stalls(reply: Reply, body: dict[str, Any]) -> None:
    """Begins, and says nothing more for as long as the server runs."""
    reply.events(delta(content="so far"))
    reply.gone.wait()


def silent(reply: Reply, body: dict[str, Any]) -> None:
    """Does not even begin."""
    reply.gone.wait()


@contextmanager
def serving(script: Script, port: int = 0) -> Iterator[str]:
    """The URL of a server that is so."""
    gone = threading.Event()
    with answering(_Server(("127.0.0.1", port), _handler(script, gone))) as url:
        try:
            yield url
        finally:
            gone.set()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that has hung up is no news."""


def _handler(script: Script, gone: threading.Event) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            script.keys.append(self.headers.get("Authorization"))
            if self.path == "/v1/models" and script.lists:
                models = [{"id": "their-model", "owned_by": script.owner, **script.model}]
                models += [{"id": name, "owned_by": script.owner} for name in script.others]
                Reply(self, gone).json({"data": models})
                return
            self._page({})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path not in (CHAT, TEXT):
                self._page(body)
                return
            with script.lock:
                script.asked.append(body)
                script.paths.append(self.path)
                answer = script.answers.pop(0) if len(script.answers) > 1 else script.answers[0]
                script.now += 1
                script.most_at_once = max(script.most_at_once, script.now)
            try:
                answer(Reply(self, gone), body)
            finally:
                with script.lock:
                    script.now -= 1

        def _page(self, body: dict[str, Any]) -> None:
            found = script.pages.get(self.path)
            found = found(body) if callable(found) else found
            if found is None:
                Reply(self, gone).error(404, "not found")
            elif isinstance(found, str):
                Reply(self, gone).raw(found.encode())
            else:
                Reply(self, gone).json(found)

    return Handler
