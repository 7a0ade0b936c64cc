"""What is said of a process that is gone."""

from __future__ import annotations

import signal

import pytest

from localspec.host.death import died


def test_a_wrong_build_is_named_with_its_remedies() -> None:
    error = died(-signal.SIGILL, "")
    assert error.message == "the engine process was killed by SIGILL (illegal instruction)"
    assert "scripts/setup" in error.hint
    assert "LOCALSPEC_NO_EXTRA_BUFFERS" in error.hint


def test_a_kill_may_be_want_of_memory() -> None:
    error = died(-signal.SIGKILL, "loaded 290 tensors\n")
    assert error.message == "the engine process was killed by SIGKILL (killed from outside)"
    assert "memory" in error.hint


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("a\nggml.c:9: GGML_ASSERT(n > 0) failed\nb\n\n", "ggml.c:9: GGML_ASSERT(n > 0) failed"),
        ("terminate called after\n  what():  vector\n", "what():  vector"),
        ("ggml-cuda.cu:1: CUDA error: no kernel image\n", "ggml-cuda.cu:1: CUDA error: no kernel image"),
    ],
)
def test_last_words_of_an_abort(log: str, words: str) -> None:
    message = "the engine process was killed by SIGABRT (an internal check failed)"
    assert died(-signal.SIGABRT, log).message == f"{message}: {words}"
    assert died(-signal.SIGABRT, "nothing of note\n").message == message


def test_an_exit_code_comes_with_the_last_line() -> None:
    assert died(1, "Traceback\nValueError: no\n").message == "the engine process ended with code 1: ValueError: no"
    assert died(0, "").message == "the engine process ended with code 0"


def test_a_signal_without_a_name() -> None:
    assert died(-99, "").message == "the engine process was killed by signal 99"


def test_very_long_last_words_are_cut() -> None:
    assert len(died(1, "x" * 5000).message) < 400
