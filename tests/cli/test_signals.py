"""Interrupts and other ends from outside, at every stage of a command."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.support import ALONE, FAKE, ROOT, children, command, environment, run, shell

STORY = ("complete", "-m", "fake.gguf", "-s", "3", "-n", "450", "--ignore-eos", "-p", "abc")
SOON = 5.0  # seconds; the answer alone takes nine


@contextmanager
def started(*arguments: str, module: str = FAKE) -> Iterator[subprocess.Popen[bytes]]:
    line = command(*arguments, module=module)
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(line, env=environment(), **pipes)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def ended_by(process: subprocess.Popen[bytes], number: signal.Signals) -> tuple[int, bytes, bytes]:
    """Exit code, stdout and stderr after a signal that works soon."""
    sent = time.monotonic()
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert time.monotonic() - sent < SOON
    return process.returncode, out, err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_while_decoding_the_text_so_far_stays(number: signal.Signals, code: int) -> None:
    with started(*STORY) as process:
        assert process.stdout is not None
        first = process.stdout.read(5)
        ended, rest, err = ended_by(process, number)
    assert (ended, err) == (code, b"")
    whole = run(*STORY, module=FAKE).stdout
    assert whole.startswith(first + rest)
    assert len(first + rest) < len(whole)


def test_interrupted_json_is_still_one_object() -> None:
    with started(*STORY, "--json") as process:
        time.sleep(2)
        code, out, err = ended_by(process, signal.SIGINT)
    assert (code, err) == (130, b"")
    assert out == b"" or json.loads(out)["finish_reason"] == "cancelled"


def test_interrupted_jsonl_ends_with_finished() -> None:
    with started(*STORY, "--jsonl") as process:
        assert process.stdout is not None
        process.stdout.readline()
        code, out, err = ended_by(process, signal.SIGINT)
    assert (code, err) == (130, b"")
    last = json.loads(out.splitlines()[-1])
    assert (last["event"], last["reason"]) == ("finished", "cancelled")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_while_the_model_loads(number: signal.Signals, code: int) -> None:
    with started(*STORY) as process:
        while not children(process.pid):
            time.sleep(0.01)
        assert ended_by(process, number) == (code, b"", b"")


def test_while_a_long_prompt_is_read(smol: Path) -> None:
    arguments = ("complete", *ALONE, "-m", str(smol), "-p", "word " * 4000, "-n", "4", "--jsonl")
    with started(*arguments, module="localspec") as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["event"] == "started"
        assert json.loads(process.stdout.readline())["event"] == "prefill"
        code, out, err = ended_by(process, signal.SIGINT)
    assert (code, err) == (130, b"")
    assert json.loads(out.splitlines()[-1])["ids"] == []


def test_twice_quickly() -> None:
    with started(*STORY, "--jsonl") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        time.sleep(0.005)
        code, out, err = ended_by(process, signal.SIGINT)
    assert (code, err) == (130, b"")
    assert all(json.loads(line) for line in out.splitlines())


def test_under_timeout() -> None:
    done = shell('timeout 5 "$@"', *STORY, module=FAKE)
    assert (done.returncode, done.stderr) == (124, b"")
    assert done.stdout


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_while_modules_are_imported(tmp_path: Path, number: signal.Signals, code: int) -> None:
    module = f"import os\ntry:\n    os.kill(os.getpid(), {int(number)})\nexcept BaseException:\n    raise ImportError\n"
    (tmp_path / "like_numpy.py").write_text(module)
    start = "app.BODIES['complete'] = ('like_numpy', ''); sys.argv = ['localspec', 'complete']; main.main()"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; from localspec.cli import app, main; {start}"],
        capture_output=True,
        env=environment({"PYTHONPATH": f"{ROOT}:{tmp_path}"}),
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (code, b"")
