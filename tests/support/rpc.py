"""RPC servers on this machine: each looks like a GPU of its own, so that placement can be tried without one.

Run as a file it is a server: ``rpc.py HOST:PORT``. It serves one client after the other, on one thread, and ends when
its standard input does: with whoever started it, however that ended.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

START_TIME = 20  # seconds


def serve(endpoint: str) -> None:
    """Offers this machine's CPU at ``endpoint`` until the process is ended."""
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    # The library is loaded without its Python package, which takes half a second.
    package = importlib.util.find_spec("llama_cpp")
    assert package is not None
    assert package.origin is not None
    ggml = ctypes.CDLL(str(Path(package.origin).parent / "lib" / "libggml.so"))
    ggml.ggml_backend_dev_by_type.restype = ctypes.c_void_p
    cpu = ctypes.c_void_p(ggml.ggml_backend_dev_by_type(0))
    start = ggml.ggml_backend_rpc_start_server
    start.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p]
    start(endpoint.encode(), None, 1, 1, ctypes.byref(cpu))


def _end_with_stdin() -> None:
    sys.stdin.read()
    os._exit(0)


@contextmanager
def rpc_servers(n: int) -> Iterator[tuple[str, ...]]:
    """``n`` servers, ready; their HOST:PORT. They end with the block."""
    with rpc_processes(n) as servers:
        yield tuple(servers)


@contextmanager
def rpc_processes(n: int) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """The same, with their processes, for tests that end one early."""
    servers: dict[str, subprocess.Popen[bytes]] = {}
    try:
        while len(servers) < n:
            endpoint = f"127.0.0.1:{free_port()}"
            servers[endpoint] = subprocess.Popen(
                [sys.executable, __file__, endpoint],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        for endpoint, process in servers.items():
            _wait_for(endpoint, process)
        yield servers
    finally:
        for process in servers.values():
            process.kill()
            process.communicate()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(endpoint: str, process: subprocess.Popen[bytes]) -> None:
    host, _, port = endpoint.rpartition(":")
    until = time.monotonic() + START_TIME
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"no RPC server at {endpoint}") from None
            time.sleep(0.02)


if __name__ == "__main__":
    serve(sys.argv[1])
