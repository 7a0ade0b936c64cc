"""Interrupted and killed: nothing is lost, nothing comes twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from localspec.errors import ExitCode
from tests.batch.factories import PASS_TIME
from tests.batch.support import FAKE, USUAL, batch, lines, records, some_lines, told
from tests.cli.support import command, environment

ITEMS = some_lines(40)


def start(source: Path, out: Path, *more: str) -> subprocess.Popen[bytes]:
    arguments = ("batch", str(source), "-o", str(out), "-np", "3", "--resume", *more, *USUAL)
    return subprocess.Popen(
        command(*arguments, module=FAKE), stderr=subprocess.PIPE, env=environment({PASS_TIME: "0.01"})
    )


def until_lines(out: Path, n: int, process: subprocess.Popen[bytes]) -> None:
    """Waits until so many lines are out."""
    while process.poll() is None and (not out.exists() or out.read_bytes().count(b"\n") < n):
        time.sleep(0.002)


@pytest.mark.parametrize("seed", range(2))
def test_killed_three_times(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    source, out, whole = tmp_path / "in.jsonl", tmp_path / "out.jsonl", tmp_path / "whole.jsonl"
    source.write_bytes(lines(ITEMS))
    for kill in range(3):
        process = start(source, out)
        until_lines(out, 4 + 9 * kill, process)
        time.sleep(rng.uniform(0, 0.05))
        assert process.poll() is None
        process.kill()
        process.communicate()
    assert batch(str(source), "-o", str(out), "--resume").returncode == 0
    assert batch(str(source), "-o", str(whole), "-np", "1").returncode == 0
    got, wanted = (sorted(map(told, records(path)), key=str) for path in (out, whole))
    assert got == wanted
    assert len(got) == 40


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, ExitCode.INTERRUPTED), (signal.SIGTERM, ExitCode.TERMINATED)]
)
def test_interrupted(number: signal.Signals, code: ExitCode, tmp_path: Path) -> None:
    """I04: it ends within a second, and goes on later."""
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(lines(ITEMS))
    process = start(source, out)
    until_lines(out, 5, process)
    os.kill(process.pid, number)
    _, said = process.communicate(timeout=20)
    assert process.returncode == code
    assert b"Traceback" not in said
    if number == signal.SIGINT:
        assert b"--resume goes on" in said
    some = len(records(out))
    assert 5 <= some < 40
    assert batch(str(source), "-o", str(out), "--resume").returncode == 0
    assert sorted(record["line"] for record in records(out)) == list(range(1, 41))
