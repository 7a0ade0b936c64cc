"""The client of servers."""

from __future__ import annotations

import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from localspec.client.engine import RemoteEngine
from localspec.client.web import client
from localspec.errors import NetworkError
from tests.client.server import Script, echoes, serving
from tests.support.http import answering


def test_https_where_a_server_speaks_plain_http() -> None:
    with serving(Script([echoes])) as url, pytest.raises(NetworkError, match="cannot be reached") as caught:
        RemoteEngine(url.replace("http:", "https:"))
    assert "try http://" in caught.value.hint


def test_a_connection_that_was_idle_is_not_used_again() -> None:
    """A server closes it at a time of its own, and a request that is on its way then is lost."""
    ports = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            ports.append(self.client_address[1])
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

    with answering(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as url, client(5.0) as asked:
        asked.get(url)
        asked.get(url)
        assert ports[0] == ports[1], "a connection in use is kept"
        time.sleep(1.1)
        asked.get(url)
        assert ports[2] != ports[1]
