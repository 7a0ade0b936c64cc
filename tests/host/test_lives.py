"""How an engine process begins and ends: loads, deaths, restarts, orphans, the terminal."""

from __future__ import annotations

import gc
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from localspec.errors import (
    Cancelled,
    EngineDied,
    EngineError,
    LocalspecError,
    ModelLoadError,
    OutOfMemory,
    PairingError,
)
from localspec.host import HostedEngine
from localspec.types import Event, Failed, Finished, SamplingParams, Tokens
from tests.engine.support import Outcome, request
from tests.host import factories
from tests.host.factories import Options, Trouble

ROOT = Path(__file__).resolve().parents[2]
SAMPLED = SamplingParams(temperature=1.0, seed=3, ignore_eos=True)
LONG = request(range(2, 30), sampling=SAMPLED, n=60)


def gone(pid: int, within: float = 2.0) -> bool:
    """Whether the process ends in time (what is left of it may wait to be reaped by others)."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


# Loading


@pytest.mark.parametrize(
    "error",
    [
        ModelLoadError("the file is cut short", hint="Download it again."),
        PairingError("other tokens", hint="Take another."),
        OutOfMemory("8 GB are needed"),
    ],
)
def test_load_errors_are_raised_as_they_are(error: LocalspecError) -> None:
    with pytest.raises(type(error)) as caught:
        HostedEngine(error, factory=factories.failing)
    assert (caught.value.message, caught.value.hint) == (error.message, error.hint)
    assert caught.value.exit_code == error.exit_code


def test_a_fault_in_the_factory_is_named() -> None:
    with pytest.raises(EngineError, match="ValueError: no such thing"):
        HostedEngine("no such thing", factory=factories.faulty)


def test_a_death_while_loading_is_an_error_too() -> None:
    with pytest.raises(EngineDied, match=r"SIGABRT.*what\(\):  bad magic"):
        HostedEngine(None, factory=factories.dying)


def test_loading_can_be_given_up() -> None:
    seen: list[float] = []

    def on_progress(stage: str, share: float) -> bool:
        assert stage == "target"
        seen.append(share)
        return len(seen) < 5

    began = time.monotonic()
    with pytest.raises(Cancelled):
        HostedEngine(None, factory=factories.endless, on_progress=on_progress)
    assert time.monotonic() - began < 15
    assert len(seen) == 5
    assert seen == sorted(seen)
    assert not psutil.Process().children()


def test_an_interrupt_while_loading_leaves_nothing_behind() -> None:
    def on_progress(stage: str, share: float) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        HostedEngine(None, factory=factories.endless, on_progress=on_progress)
    assert not psutil.Process().children()


def test_what_cannot_travel_is_refused_before_anything_starts() -> None:
    with pytest.raises((AttributeError, pickle.PicklingError)):
        HostedEngine(None, factory=lambda options, progress: None)


# Deaths


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        ("KILL", r"killed by SIGKILL"),
        ("ILL", r"killed by SIGILL \(illegal instruction\)"),
        ("SEGV", r"killed by SIGSEGV"),
        ("ABRT", r"killed by SIGABRT"),
        ("assert", r"SIGABRT .*: ggml\.c:9: GGML_ASSERT\(rows <= n_batch\) failed"),
        ("exit", r"ended with code 7"),
        ("raise", r"ended with code 1: ValueError: a fault in Python"),
    ],
)
def test_a_death_in_a_pass_ends_the_answers_and_a_restart_gives_them(
    trouble: Trouble, words: str, tmp_path: Path
) -> None:
    options = Options(trouble, at=8, once=tmp_path / "happened", together=2)
    with HostedEngine(options, factory=factories.engine) as hosted:
        first, second = hosted.submit(LONG), hosted.submit(LONG)
        outcomes = [Outcome(tuple(first)), Outcome(tuple(second))]
        for handle, outcome in zip((first, second), outcomes, strict=True):
            assert outcome.failed.request == handle.number
            assert outcome.failed.kind == "EngineDied"
            assert re.search(words, outcome.failed.message)
            assert outcome.failed.hint
        alive = [hosted.alive]
        for ask in (hosted.submit, hosted.encode):
            with pytest.raises(EngineDied, match=words):
                ask(LONG)
        first.cancel()
        hosted.restart()
        alive.append(hosted.alive)
        assert alive == [False, True]
        again = Outcome(tuple(hosted.submit(LONG)))
        assert len(again.ids) == 60
        assert outcomes[0].text
        assert again.text.startswith(outcomes[0].text)


def test_a_kill_from_outside_of_an_idle_engine() -> None:
    with HostedEngine(Options(), factory=factories.engine) as hosted:
        os.kill(hosted.pid, signal.SIGKILL)
        with pytest.raises(EngineDied, match="SIGKILL"):
            hosted.submit(LONG)
        with pytest.raises(EngineDied, match="SIGKILL"):
            hosted.encode(LONG)


def test_a_broken_line_does_not_kill_a_program_that_dies_of_broken_pipes() -> None:
    code = """
import os, signal
from localspec.errors import EngineDied
from localspec.host import HostedEngine
from tests.engine.support import request
from tests.host import factories
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
with HostedEngine(factories.Options(), factory=factories.engine) as hosted:
    os.kill(hosted.pid, signal.SIGKILL)
    for _ in range(3):
        try:
            hosted.submit(request([2] * 100_000))
        except EngineDied:
            print("died")
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("died\n" * 3, "")


# Ends


def test_close_ends_running_answers_as_cancelled() -> None:
    hosted = HostedEngine(Options("slow", at=4, together=2), factory=factories.engine)
    handles = [hosted.submit(LONG), hosted.submit(LONG)]
    began = time.monotonic()
    hosted.close()
    assert time.monotonic() - began < 1.9
    assert [Outcome(tuple(handle)).finished.reason for handle in handles] == ["cancelled"] * 2
    assert gone(hosted.pid, 0.1)
    assert not hosted.alive
    with pytest.raises(EngineDied, match="the engine is closed"):
        hosted.submit(LONG)
    hosted.close()


def test_close_kills_an_engine_that_does_not_listen() -> None:
    hosted = HostedEngine(Options("deaf", at=4), factory=factories.engine)
    handle = hosted.submit(LONG)
    events = iter(handle)
    while not isinstance(next(events), Tokens):
        pass
    time.sleep(0.2)  # well into the deaf pass
    began = time.monotonic()
    hosted.close()
    assert time.monotonic() - began < 4
    *_, last = events
    assert isinstance(last, Failed)
    assert last.message == "the engine is closed"


def test_nothing_is_left_open() -> None:
    me = psutil.Process()
    gc.collect()
    before = (me.num_fds(), threading.active_count(), me.children())
    for _ in range(2):
        with HostedEngine(Options(), factory=factories.engine) as hosted:
            list(hosted.submit(LONG))
            hosted.restart()
    with pytest.raises(ModelLoadError):
        HostedEngine(ModelLoadError("no"), factory=factories.failing)
    assert (me.num_fds(), threading.active_count(), me.children()) == before


def test_an_engine_nobody_holds_is_closed_and_a_handle_holds_it() -> None:
    hosted = HostedEngine(Options(), factory=factories.engine)
    pid = hosted.pid
    handle = hosted.submit(LONG)
    del hosted
    gc.collect()
    assert len(Outcome(tuple(handle)).ids) == 60
    del handle
    gc.collect()
    assert gone(pid)


def test_the_garbage_collector_may_close_from_the_reading_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    with HostedEngine(Options(), factory=factories.engine) as hosted:
        process = hosted._process
        monkeypatch.setattr(process, "_deliver", lambda news: process.close())
        with pytest.raises(EngineDied, match="the engine is closed"):
            hosted.encode(LONG)


@pytest.mark.parametrize("state", ["idle", "deaf", "loading"])
def test_no_orphan_when_the_front_end_is_killed(state: str) -> None:
    code = """
import os, sys, time
from localspec.host import HostedEngine
from tests.engine.support import request
from tests.host import factories
def say(stage, share):
    import psutil
    print(psutil.Process().children()[0].pid, flush=True)
    time.sleep(60)
if sys.argv[1] == "loading":
    HostedEngine(None, factory=factories.endless, on_progress=say)
trouble = "none" if sys.argv[1] == "idle" else sys.argv[1]
hosted = HostedEngine(factories.Options(trouble), factory=factories.engine)
if sys.argv[1] == "deaf":
    handle = hosted.submit(request([2] * 20))
print(hosted.pid, flush=True)
time.sleep(60)
"""
    command = [sys.executable, "-c", code, state]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as front_end:
        assert front_end.stdout is not None
        pid = int(front_end.stdout.readline())
        time.sleep(0.2)
        assert not gone(pid, 0.1)
        front_end.kill()
        assert gone(pid, 2.0)


def test_a_program_that_just_ends_takes_its_engine_along() -> None:
    code = """
from localspec.host import HostedEngine
from tests.host import factories
hosted = HostedEngine(factories.Options(), factory=factories.engine)
print(hosted.pid)
"""
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert gone(int(done.stdout))


# The terminal


def test_nothing_the_child_prints_is_seen_here(capfd: pytest.CaptureFixture[str]) -> None:
    with HostedEngine(Options("noisy"), factory=factories.engine) as hosted:
        assert len(Outcome(tuple(hosted.submit(LONG))).ids) == 60
    assert capfd.readouterr() == ("", "")


def test_the_terminal_interrupts_the_front_end_only() -> None:
    with HostedEngine(Options(), factory=factories.engine) as hosted:
        assert os.getsid(hosted.pid) == hosted.pid != os.getsid(0)
        os.kill(hosted.pid, signal.SIGINT)
        assert len(Outcome(tuple(hosted.submit(LONG))).ids) == 60


def test_an_interrupted_loop_can_be_read_to_its_end() -> None:
    with HostedEngine(Options("steady"), factory=factories.engine) as hosted:
        handle = hosted.submit(request(LONG.tokens or (), sampling=SAMPLED, n=400))
        got: list[Event] = []
        timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            got.extend(event for event in handle)
        timer.join()
        outcome = Outcome((*got, *handle))
        assert isinstance(outcome.last, Finished)
        assert outcome.finished.reason == "cancelled"
        assert tuple(info.id for info in outcome.infos) == outcome.ids
        assert len(Outcome(tuple(hosted.submit(LONG))).ids) == 60


def test_importing_the_host_is_cheap() -> None:
    banned = ("numpy", "llama_cpp", "gguf", "jinja2", "textual", "typer", "rich", "localspec.engine")
    code = f"import sys, localspec.host; print(*(m for m in {banned!r} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_the_folder_it_starts_in_shadows_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "random.py").write_text("raise SystemExit('the wrong module')")
    monkeypatch.chdir(tmp_path)
    with HostedEngine(Options(), factory=factories.engine) as hosted:
        assert len(Outcome(tuple(hosted.submit(LONG))).ids) == 60
