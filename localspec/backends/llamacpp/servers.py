"""Joining RPC servers: their devices stand beside this machine's.

ggml ends the process where a server is not there, speaks another version, or hangs up; and a server that serves another
client keeps it waiting without end. So a child tries first, with a time limit.
"""

from __future__ import annotations

import ctypes
import os
import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from localspec.errors import NetworkError, UsageError

TIMEOUT = 10.0  # seconds a server has for its answer
_HINT = "Start it (rpc-server of the same llama.cpp version), or leave it out of --rpc."
_PROBE = Path(__file__).with_name("rpc_probe.py")
_FORM = re.compile(r"(?P<host>[^:\s]+):(?P<port>\d{1,5})")


def join(library: Any, path: str, servers: Sequence[str], connected: Sequence[str], timeout: float = TIMEOUT) -> None:
    """Registers the devices of ``servers`` (HOST:PORT) with ggml, for the rest of this process's life.

    Args:
        library: ggml, and ``path`` its file.
        connected: servers that models of this process hold a line to. They serve one client, so are not asked.

    Raises:
        UsageError: not HOST:PORT, or this build has no RPC.
        NetworkError: a server does not answer, or not as an RPC server of this version.
    """
    if not servers:
        return
    find, register = library["ggml_backend_reg_by_name"], library["ggml_backend_register"]
    find.argtypes, find.restype = [ctypes.c_char_p], ctypes.c_void_p
    register.argtypes, register.restype = [ctypes.c_void_p], None
    if not find(b"RPC"):
        raise UsageError(
            "--rpc: this build of llama.cpp has no RPC", hint="Rebuild it with scripts/setup, or leave --rpc out."
        )
    for server in servers:
        _check_form(server)
        if server not in connected:
            _reach(server, timeout)
            _ask(path, server, timeout)
        if not find(f"RPC[{server}]".encode()):
            add = library["ggml_backend_rpc_add_server"]
            add.argtypes, add.restype = [ctypes.c_char_p], ctypes.c_void_p
            register(add(server.encode()))


def _check_form(server: str) -> None:
    form = _FORM.fullmatch(server)
    if form is None or not 0 < int(form["port"]) < 65536:
        raise UsageError(
            f"--rpc {server} is not HOST:PORT", hint="Write it as 192.168.1.5:50052, commas between servers."
        )


def _reach(server: str, timeout: float) -> None:
    host, _, port = server.rpartition(":")
    try:
        # IPv4, as ggml.
        address = socket.getaddrinfo(host, int(port), socket.AF_INET, socket.SOCK_STREAM)[0][4]
        socket.create_connection((str(address[0]), int(address[1])), timeout).close()
    except (OSError, UnicodeError) as error:
        timed_out = isinstance(error, TimeoutError)
        why = f"no answer within {timeout:g} s" if timed_out else getattr(error, "strerror", None) or str(error)
        raise NetworkError(f"the RPC server {server} cannot be reached: {why}", hint=_HINT) from None


def _ask(path: str, server: str, timeout: float) -> None:
    """Lets a child do what would end this process."""
    try:
        child = subprocess.run(
            [sys.executable, "-I", str(_PROBE), path, server],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout,
            check=False,
            env={**os.environ, "GGML_NO_BACKTRACE": "1"},
        )
    except subprocess.TimeoutExpired:
        raise NetworkError(
            f"the RPC server {server} does not answer within {timeout:g} s",
            hint="It serves one client at a time: end the other, or check that it is an RPC server.",
        ) from None
    if child.returncode == 0 and child.stdout.strip() not in (b"", b"0"):
        return
    said = child.stderr.decode("utf-8", "replace").splitlines()
    # An abort names file and line before its reason.
    reasons = [match[1] for line in said if (match := re.match(r"\S+:\d+: (.+)", line))]
    why = (reasons or [line for line in said if line.strip()] or ["it offers no device"])[0].strip()[:200]
    raise NetworkError(f"the RPC server {server} does not answer as one: {why}", hint=_HINT)
