"""How far a training is, and how it is stopped."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from localspec.cli import training
from localspec.cli.train import _origin, _stopping, _wish, check_output
from localspec.cli.training import Telling
from localspec.errors import UsageError
from tests.support.gguf_files import TokenizerKeys
from tests.support.gguf_heads import TinyHead

POINT: Any = SimpleNamespace(tokens=5000, acceptance=SimpleNamespace(length=1.75, by_position=(0.5, 0.25)))


def told(telling: Telling) -> None:
    with telling:
        with telling.phase("writing \x1b[31mtexts", 10) as said:
            said(4, "loss [bold]2.00")
        telling.point(POINT)
        for _ in range(2):
            with telling.phase("learning", None) as said:
                said(1, "")


def test_without_a_terminal_each_thing_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    told(Telling())
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.removeprefix("localspec: ") for line in err.splitlines()] == [
        "writing �[31mtexts …",
        "5000 tokens learned from: 1.75 tokens a step (accepted: 50 % 25 %)",
        "learning …",
    ]


def test_at_a_terminal_there_is_a_bar_and_measurements_stay(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "moves", lambda: True)
    told(Telling())
    err = capsys.readouterr().err
    assert "localspec: 5000 tokens learned from: 1.75" in err
    assert "\x1b[31m" not in err


def test_the_first_interrupt_asks_and_the_second_ends(capsys: pytest.CaptureFixture[str]) -> None:
    telling = Telling()

    def interrupted_twice() -> None:
        with telling, _stopping(telling):
            os.kill(os.getpid(), signal.SIGINT)
            assert telling.stopped
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        interrupted_twice()
    assert capsys.readouterr().err == "localspec: ending; ctrl-c again ends at once\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_texts_come_from_one_place() -> None:
    pytest.importorskip("torch", reason="torch is not installed (pip install 'localspec[torch]')")
    with pytest.raises(UsageError, match="--prompts and --corpus exclude each other"):
        _wish({"prompts": "a", "corpus": "b", "from_log": None})


def test_a_place_that_cannot_be_written_is_told_before_anything_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder, not a file to write to"):
        check_output(tmp_path)
    with pytest.raises(UsageError, match="none is no folder to write to"):
        check_output(tmp_path / "none" / "head.gguf")
    check_output(tmp_path / "head.gguf")


def test_a_drafter_to_go_on_from_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--from .*head\.gguf is not there"):
        _origin({"origin": str(tmp_path / "head.gguf")}, "eagle3")
    assert _origin({"origin": None}, "eagle3") is None


def test_a_drafter_to_go_on_from_is_of_the_same_kind(tmp_path: Path) -> None:
    head = tmp_path / "head.gguf"
    TinyHead(10, 64, (0, 1, 1)).write(head, TokenizerKeys({}))
    assert _origin({"origin": str(head)}, "eagle3") == head
    with pytest.raises(UsageError, match="is of the architecture eagle3, not llama"):
        _origin({"origin": str(head)}, "llama")
