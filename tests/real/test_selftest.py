"""The check whether this build survives its own fast path."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from localspec.backends.llamacpp import Native, extra_buffers_are_safe, selftest
from localspec.errors import EngineError


class Child:
    """Stands for the child process: which ways of decoding it survives, and how often it was run."""

    def __init__(self, *, fast: str | None, slow: str | None = None) -> None:
        self.deaths = {True: fast, False: slow}
        self.runs: list[bool] = []

    def __call__(self, *, extra_buffers: bool) -> str | None:
        self.runs.append(extra_buffers)
        return self.deaths[extra_buffers]


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> Native:
    monkeypatch.delenv(selftest.SKIP, raising=False)
    return Native()


def use(child: Child, monkeypatch: pytest.MonkeyPatch) -> Child:
    monkeypatch.setattr(selftest, "_try", child)
    return child


def test_a_build_that_lives_is_tried_once(native: Native, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child, cache, said = use(Child(fast=None), monkeypatch), tmp_path / "new" / "verdicts.json", list[str]()
    assert extra_buffers_are_safe(native, said.append, cache=cache)
    assert extra_buffers_are_safe(native, said.append, cache=cache)
    assert child.runs == [True]
    assert said == []
    assert list(json.loads(cache.read_text()).values()) == [True]
    assert [file.name for file in cache.parent.iterdir()] == [cache.name]


def test_a_build_that_dies_goes_on_without(native: Native, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child, cache, said = use(Child(fast="SIGILL"), monkeypatch), tmp_path / "verdicts.json", list[str]()
    assert not extra_buffers_are_safe(native, said.append, cache=cache)
    assert not extra_buffers_are_safe(native, said.append, cache=cache)
    assert child.runs == [True, False]
    assert len(said) == 1
    assert "repacking stays off" in said[0]


def test_a_build_that_cannot_decode_is_an_error(
    native: Native, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(Child(fast="SIGILL", slow="SIGILL"), monkeypatch)
    with pytest.raises(EngineError, match=r"cannot run on this CPU \(SIGILL\)") as caught:
        extra_buffers_are_safe(native, print, cache=tmp_path / "verdicts.json")
    assert caught.value.hint
    assert not (tmp_path / "verdicts.json").exists()


@pytest.mark.parametrize("rubbish", ["", "[1, 2]", "{", "\x00"])
def test_a_spoilt_memory_is_forgotten(
    native: Native, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rubbish: str
) -> None:
    child, cache = use(Child(fast=None), monkeypatch), tmp_path / "verdicts.json"
    cache.write_text(rubbish)
    assert extra_buffers_are_safe(native, print, cache=cache)
    assert child.runs == [True]
    assert list(json.loads(cache.read_text()).values()) == [True]


def test_a_memory_that_cannot_be_kept(native: Native, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(Child(fast=None), monkeypatch)
    (tmp_path / "file").write_text("")
    assert extra_buffers_are_safe(native, print, cache=tmp_path / "file" / "verdicts.json")


def test_the_user_can_switch_it_off(native: Native, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = use(Child(fast=None), monkeypatch)
    monkeypatch.setenv(selftest.SKIP, "1")
    assert not extra_buffers_are_safe(native, print, cache=tmp_path / "verdicts.json")
    assert child.runs == []


def test_a_real_child(native: Native) -> None:
    assert selftest._try(extra_buffers=False) is None


def test_how_a_child_died(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nkill -ILL $$\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    assert selftest._try(extra_buffers=True) == "SIGILL"
    python.write_text("#!/bin/sh\nexit 7\n")
    assert selftest._try(extra_buffers=True) == "exit code 7"
