"""localspec against llama.cpp's server: ``python -m scripts.peer LLAMA_SERVER [-m MODEL] [bench flags]``.

``LLAMA_SERVER`` is a server built from the source that llama-cpp-python carries, with the flags of its wheel:

    pip download --no-deps --no-binary llama-cpp-python llama-cpp-python==VERSION    (as in pyproject.toml; unpack it)
    cmake -S …/vendor/llama.cpp -B build -DCMAKE_BUILD_TYPE=Release -DGGML_RPC=ON -DLLAMA_BUILD_UI=OFF \\
        -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF
    cmake --build build --target llama-server

``scripts/native_build.py`` names further flags for processors that need them. Both sides run with the same threads,
context, flash attention and weight repacking; neither finds a prompt in a cache or ends an answer early. The server
decodes plainly (the baseline) and, a second one, with its own n-grams; here nothing is guessed, n-grams guess under its
name, and what localspec does by itself.
"""

from __future__ import annotations

import argparse
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from localspec.control.threads import core_count
from localspec.models.demo import demo_model

OURS = ("none=--spec off", "ngram-simple=--spec-type ngram-simple", "auto=--spec-type suffix")
THEIRS = "server, ngram-simple"
GUESSING = ("--spec-type", "ngram-simple", "--spec-draft-n-max", "48")
PATIENCE_S = 120


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the servers end, too
    parser = argparse.ArgumentParser(prog="scripts/peer.py")
    parser.add_argument("server", type=Path, metavar="LLAMA_SERVER")
    parser.add_argument("-m", "--model", type=Path, default=demo_model())
    args, bench = parser.parse_known_args()
    same = ("-m", str(args.model), "-c", "2048", "-t", str(core_count()), "-tb", str(core_count()), "-fa", "on")
    with ExitStack() as stack:
        plain = stack.enter_context(running(args.server, same))
        guessing = stack.enter_context(running(args.server, (*same, *GUESSING)))
        servers = ("--server-baseline", f"server={plain}", "--server", f"{THEIRS}={guessing}")
        settings = [word for one in OURS for word in ("--setting", one)]
        command = [sys.executable, "-m", "localspec", "bench", *same, *settings, *servers, *bench]
        return subprocess.run(command, check=False).returncode


@contextmanager
def running(server: Path, flags: Sequence[str]) -> Iterator[str]:
    """The URL of a server with one slot that reads every prompt anew and never ends an answer by itself."""
    port = free_port()
    alone = ("-np", "1", "--no-cache-prompt", "-cram", "0", "--ignore-eos", "--host", "127.0.0.1", "--port", str(port))
    child = subprocess.Popen([server, *flags, *alone], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_for(url, child)
        yield url
    finally:
        child.terminate()
        child.wait()


def wait_for(url: str, child: subprocess.Popen[bytes]) -> None:
    """Until the model is loaded."""
    late = time.monotonic() + PATIENCE_S
    while child.poll() is None and time.monotonic() < late:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except (urllib.error.URLError, ConnectionError):  # not there yet, or still loading
            time.sleep(0.1)
    sys.exit("the server did not start: run it by hand to see why")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
