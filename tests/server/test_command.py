"""``localspec serve`` as a process: what it says, what it refuses, how it ends."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from localspec.errors import ExitCode
from tests.cli.support import command, environment, error_line, run
from tests.server.support import HELLO, until

FAKE = "tests.server.fake_main"


@contextmanager
def served(*arguments: str, ready: bool = True, **variables: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A process, and its URL."""
    words = command("serve", "--port", "0", *arguments, module=FAKE)
    env = environment(variables)
    # Unbuffered: what is read of a line must not take along what comes after it.
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, env=env)
    assert process.stderr is not None
    try:
        line = process.stderr.readline().decode()
        assert line.startswith("listening on http://"), line
        url = line.split()[-1]
        if ready:
            until(lambda: httpx2.get(f"{url}/health").status_code == 200)
        yield process, url
    finally:
        process.kill()
        process.communicate()


def end(process: subprocess.Popen[bytes], number: int = signal.SIGTERM) -> tuple[int, str, str]:
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    return process.returncode, out.decode(), err.decode()


def test_it_serves_with_its_options_and_ends_in_peace() -> None:
    with served("--alias", "mine", "-n", "7", "-np", "2", "--temp", "0", "-sys", "be kind") as (process, url):
        answer = httpx2.post(f"{url}/v1/chat/completions", json={"messages": HELLO}).json()
        assert (answer["model"], answer["usage"]["completion_tokens"]) == ("mine", 7)
        assert answer["usage"]["prompt_tokens"] == len("s:be kind\nu:hello\n")
        assert len(httpx2.get(f"{url}/slots").json()) == 2
        code, out, err = end(process)
    assert (code, out) == (0, "")
    assert err == "ready: mine, 2 answers at a time, 64 may wait\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_running_answers_finish_first(number: int) -> None:
    with served(LOCALSPEC_TEST_PASS_TIME="0.01") as (process, url):
        fields: Any = {"messages": HELLO, "max_tokens": 60, "stream": True}
        with httpx2.stream("POST", f"{url}/v1/chat/completions", json=fields, timeout=20) as got:
            lines = got.iter_lines()
            next(lines)
            process.send_signal(number)
            assert list(lines)[-2] == "data: [DONE]"
        assert process.wait(20) == 0


@pytest.mark.parametrize(("drain", "numbers"), [("1", [signal.SIGTERM]), ("30", [signal.SIGINT, signal.SIGINT])])
def test_what_is_given_up_says_so(drain: str, numbers: list[int]) -> None:
    with served("--drain", drain, LOCALSPEC_TEST_PASS_TIME="0.01") as (process, url):
        fields: Any = {"messages": HELLO, "max_tokens": 3000, "speculative": "off"}
        asked = {"json": fields, "timeout": 20}
        path = f"{url}/v1/chat/completions"
        with (
            ThreadPoolExecutor(1) as pool,
            httpx2.stream("POST", path, json={**fields, "stream": True}, timeout=20) as got,
        ):
            lines = got.iter_lines()
            next(lines)
            waiting = pool.submit(httpx2.post, path, **asked)
            until(lambda: "llamacpp:requests_processing 2" in httpx2.get(f"{url}/metrics").text)
            for number in numbers:
                process.send_signal(number)
                time.sleep(0.2)
            last = [line for line in lines if line][-1]  # the body ends as it should: else this raises
            assert json.loads(last.removeprefix("data: "))["error"]["code"] == "draining"
            assert (waiting.result().status_code, waiting.result().json()["error"]["code"]) == (503, "draining")
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, b"")
    assert err.decode() == (
        "ready: fake.gguf, 4 answers at a time, 64 may wait\nlocalspec: finishing 2 answers; ctrl-c again ends now\n"
    )


def test_a_public_address_without_a_key_is_worth_a_line(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("# ours\nsecret\n\n")
    warning = "localspec: 0.0.0.0 is open to whoever can reach it"
    with served("--host", "0.0.0.0") as (process, _):
        assert end(process)[2].startswith(warning)
    with served("--host", "0.0.0.0", "--api-key-file", str(keys), ready=False) as (process, url):
        until(lambda: httpx2.get(f"{url}/health").status_code == 200)
        assert httpx2.get(f"{url}/v1/models").status_code == 401
        assert httpx2.get(f"{url}/v1/models", headers={"Authorization": "Bearer secret"}).status_code == 200
        assert warning not in end(process)[2]


def test_what_it_refuses(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("# nothing\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert "cannot be listened on: Address already in use" in error_line(
            run("serve", "--port", port, module=FAKE), ExitCode.USAGE
        )
    for arguments, words in (
        (("--host", "no such name"), "--host no such name is no address"),
        (("--port", "70000"), "--port 70000 is out of range"),
        (("--api-key-file", str(empty)), "has no key"),
        (("--api-key-file", str(tmp_path / "none")), "cannot be read: No such file"),
        (("--api-key", ""), "--api-key has an empty key"),
        (("--api-key", "käse"), "a key has characters that no header carries"),
        (("--cors-origins", "chat.example"), "--cors-origins chat.example is no origin"),
        (("-m", str(tmp_path / "none.gguf")), "none.gguf"),
    ):
        assert words in error_line(run("serve", *arguments, module=FAKE), _code(arguments))


def _code(arguments: tuple[str, ...]) -> ExitCode:
    return ExitCode.MODEL if arguments[0] == "-m" else ExitCode.USAGE


def test_without_its_extra_it_says_what_to_install(tmp_path: Path) -> None:
    hiding = tmp_path / "sitecustomize.py"
    hiding.write_text(
        "import importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'uvicorn' else find(name, *a)\n"
    )
    root = str(Path(__file__).resolve().parents[2])
    done = run("serve", env={"PYTHONPATH": f"{tmp_path}:{root}"})
    assert "pip install 'localspec[server]'" in error_line(done, ExitCode.USAGE)
