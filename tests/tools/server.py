"""A server that streams words, in OpenAI's protocol, with or without what servers add to it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.http import answering


@dataclass
class Answers:
    """``events`` go out after a request, each as one line of the stream; ``asked`` are the bodies that came."""

    events: list[Any]
    status: int = 200
    models: object = field(default_factory=lambda: {"data": [{"id": "fake-model"}]})
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)


def words(*texts: str, **last: object) -> list[Any]:
    chunks: list[Any] = [{"choices": [{"delta": {"role": "assistant"}}]}]
    chunks += [{"choices": [{"delta": {"content": text}}]} for text in texts]
    return [*chunks, {"choices": [], **last}] if last else chunks


@contextmanager
def serving(answers: Answers) -> Iterator[str]:
    """The URL of a server that gives these answers."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            known = self.path == "/v1/models"
            self._send(200 if known else 404, json.dumps(answers.models if known else {}).encode())

        def do_POST(self) -> None:
            assert self.path == "/v1/chat/completions", self.path
            answers.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            answers.keys.append(self.headers.get("Authorization"))
            lines = [event if isinstance(event, str) else json.dumps(event) for event in answers.events]
            self._send(answers.status, "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]).encode())

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            # Two writes, so that later chunks come later than the first.
            half = body.find(b"\n\n", body.find(b'"content"')) + 2
            self.wfile.write(body[:half])
            self.wfile.flush()
            threading.Event().wait(0.005)
            self.wfile.write(body[half:])

    with answering(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as url:
        yield url
