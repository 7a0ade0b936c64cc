"""RPC servers that are not what they should be: one clear line in bounded time, and this process lives on."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import pytest

from localspec.backends.llamacpp import Native, servers
from localspec.errors import ExitCode, NetworkError, UsageError
from tests.support.rpc import free_port


@contextmanager
def listening(answer: bytes | None) -> Iterator[str]:
    """A server that says ``answer`` and hangs up, or never says anything."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        kept = []

        def talk() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                kept.append(client)
                if answer is not None:
                    client.sendall(answer)
                    client.close()

        thread = threading.Thread(target=talk)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for client in kept:
                client.close()


def join(server: str, timeout: float = servers.TIMEOUT) -> None:
    native = Native()
    servers.join(native.lib._lib, native.library_path, [server], (), timeout)


@pytest.mark.parametrize(
    "server", ["somewhere", "host:", ":50052", "host:0", "host:65536", "a:b:1", "host:-1", "h h:1"]
)
def test_not_host_and_port(server: str) -> None:
    with pytest.raises(UsageError, match="is not HOST:PORT") as caught:
        join(server)
    assert server in caught.value.message


def test_nobody_there() -> None:
    server = f"127.0.0.1:{free_port()}"
    with pytest.raises(NetworkError, match=f"{server} cannot be reached: Connection refused") as caught:
        Native(rpc=[server])
    assert caught.value.exit_code == ExitCode.NETWORK
    assert "--rpc" in caught.value.hint
    assert all(device.server != server for device in Native().devices.registered())


def test_no_such_host(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> NoReturn:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(NetworkError, match=r"nowhere:1 cannot be reached: Name or service not known"):
        join("nowhere:1")


def test_a_host_that_can_have_no_address() -> None:
    with pytest.raises(NetworkError, match=r"a\.\.b:1 cannot be reached: \S"):
        join("a..b:1")


def test_a_server_that_says_nothing() -> None:
    with listening(None) as server:
        start = time.monotonic()
        with pytest.raises(NetworkError, match=r"does not answer within 0\.5 s"):
            join(server, timeout=0.5)
        assert time.monotonic() - start < 10


def test_a_server_of_another_kind() -> None:
    with listening(b"HTTP/1.1 400 Bad Request\r\n\r\n") as server:
        with pytest.raises(NetworkError, match=r"does not answer as one: Remote RPC server") as caught:
            join(server)
        assert "\n" not in caught.value.message
