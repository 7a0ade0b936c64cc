"""A hub on 127.0.0.1: answers what huggingface_hub asks, and errs where a test wants it to."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.support.http import answering

COMMIT = "c0ffee" + "0" * 34
NEXT_COMMIT = "decade" + "0" * 34


@dataclass(frozen=True)
class Fault:
    """What goes wrong with one answer.

    Args:
        status, headers: another answer than the file.
        cut: after this share of the bytes the connection is closed.
        ignores_range: 200 and the whole file, whatever was asked for.
        wrong_range: 206 with another range than was asked for.
        body: other bytes than the file's.
        chunked: the length is not announced.
        hang: answers only when this is set.
        stall: after a cut the connection stays open until this is set.
    """

    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    cut: float | None = None
    ignores_range: bool = False
    wrong_range: bool = False
    body: bytes | None = None
    chunked: bool = False
    hang: threading.Event | None = None
    stall: threading.Event | None = None


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    range: str | None
    token: str | None


class FakeHub:
    """Repositories in memory: ``repos[repo][name]`` is a file. ``file_faults`` and ``api_faults`` are used up, one a
    request; ``always`` holds for every request of a file. With ``cdn`` files are behind a redirect to another host."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.cdn_url = f"http://localhost:{port}"
        self.repos: dict[str, dict[str, bytes]] = {}
        self.commit = COMMIT
        self.gated = False
        self.private_token: str | None = None
        self.cdn = False
        self.lists_blobs = True
        self.lfs = True
        self.file_faults: list[Fault] = []
        self.api_faults: list[Fault] = []
        self.always: Fault | None = None
        self.requests: list[Request] = []

    @property
    def ranges(self) -> list[str | None]:
        """The Range headers of requests for files."""
        return [one.range for one in self.requests if one.method == "GET" and "/api/" not in one.path]

    def etag(self, content: bytes) -> str:
        if self.lfs:
            return hashlib.sha256(content).hexdigest()
        return _git_sum(content)

    def listing(self, repo: str) -> dict[str, Any]:
        siblings = []
        for name, content in self.repos[repo].items():
            entry: dict[str, Any] = {"rfilename": name}
            if self.lists_blobs:
                entry |= {
                    "size": len(content),
                    "blobId": hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest(),
                }
                if self.lfs:
                    entry["lfs"] = {"size": len(content), "sha256": self.etag(content), "pointerSize": 130}
            siblings.append(entry)
        return {"id": repo, "modelId": repo, "sha": self.commit, "siblings": siblings}


def _git_sum(content: bytes) -> str:
    return hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: FakeHub

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        hub, path = self.hub, unquote(urlsplit(self.path).path)
        token = self.headers.get("Authorization")
        hub.requests.append(Request(self.command, self.path, self.headers.get("Range"), token))
        if path.startswith("/api/models/"):
            self._api(path.removeprefix("/api/models/"), token)
        elif path.startswith("/cdn/"):
            repo, _, name = path.removeprefix("/cdn/").partition("/-/")
            self._file(hub.repos[repo][name])
        else:
            repo, _, rest = path.strip("/").partition("/resolve/")
            self._resolve(repo, rest.partition("/")[2], token)

    def _api(self, repo: str, token: str | None) -> None:
        hub = self.hub
        if hub.api_faults and self._refuse(hub.api_faults.pop(0)):
            return
        if repo not in hub.repos or (hub.private_token and token != f"Bearer {hub.private_token}"):
            self._say(
                401 if token is None else 404, {"X-Error-Code": "RepoNotFound"}, b'{"error":"Repository not found"}'
            )
            return
        self._say(200, {"Content-Type": "application/json"}, json.dumps(hub.listing(repo)).encode())

    def _resolve(self, repo: str, name: str, token: str | None) -> None:
        hub = self.hub
        if hub.gated and token is None:
            self._say(401, {"X-Error-Code": "GatedRepo"}, b"Access to this model is restricted")
        elif hub.gated:
            self._say(403, {"X-Error-Code": "GatedRepo"}, b"Access to this model is restricted")
        elif name not in hub.repos.get(repo, {}):
            self._say(404, {"X-Error-Code": "EntryNotFound"}, b"Entry not found")
        elif hub.cdn:
            content = hub.repos[repo][name]
            self._say(302, {"Location": f"{hub.cdn_url}/cdn/{repo}/-/{name}", **self._linked(content)}, b"")
        else:
            self._file(hub.repos[repo][name])

    def _linked(self, content: bytes) -> dict[str, str]:
        return {
            "X-Repo-Commit": self.hub.commit,
            "X-Linked-Size": str(len(content)),
            "X-Linked-Etag": f'"{self.hub.etag(content)}"',
        }

    def _file(self, content: bytes) -> None:
        hub = self.hub
        fault = hub.file_faults.pop(0) if hub.file_faults and self.command == "GET" else hub.always or Fault()
        if self._refuse(fault):
            return
        headers = {"ETag": f'"{hub.etag(content)}"', "Accept-Ranges": "bytes", **self._linked(content)}
        body, status, start = content if fault.body is None else fault.body, 200, 0
        asked = self.headers.get("Range")
        if asked is not None and not fault.ignores_range:
            start = 0 if fault.wrong_range else int(asked.removeprefix("bytes=").rstrip("-"))
            if start >= len(content):
                self._say(416, {"Content-Range": f"bytes */{len(content)}"}, b"")
                return
            status, body = 206, body[start:]
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self._say(status, headers, body, fault)

    def _refuse(self, fault: Fault) -> bool:
        if fault.hang is not None:
            fault.hang.wait(5)
        if fault.status is None:
            return False
        self._say(fault.status, fault.headers, fault.body or b"")
        return True

    def _say(self, status: int, headers: dict[str, str], body: bytes, fault: Fault | None = None) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        chunked = fault is not None and fault.chunked
        self.send_header(*("Transfer-Encoding", "chunked") if chunked else ("Content-Length", str(len(body))))
        self.end_headers()
        if self.command == "HEAD":
            return
        if chunked:
            body = f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n"
        if fault is not None and fault.cut is not None:
            body = body[: int(len(body) * fault.cut)]
            self.close_connection = True
        self.wfile.write(body)
        if fault is not None and fault.stall is not None:
            fault.stall.wait(5)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that leaves early is what some tests are about


@contextmanager
def fake_hub() -> Iterator[FakeHub]:
    """A hub that runs while the context is open."""
    handler = type("Handler", (_Handler,), {})
    server = _Server(("127.0.0.1", 0), handler)
    hub = handler.hub = FakeHub(server.server_port)  # type: ignore[attr-defined]
    with answering(server):
        yield hub
