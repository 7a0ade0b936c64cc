"""Copying on the screen: the way is said, and keys go on meanwhile."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from localspec.talk import clipboard
from localspec.talk.clipboard import copied_file
from tests.tui.support import ask, on_screen, rests, running, said, says, told, until


@on_screen
async def test_a_terminal_is_asked_and_the_file_named() -> None:
    async with running(says("yes")) as (app, pilot):
        await rests(app, pilot)
        await ask(app, pilot, "a")
        await pilot.press("alt+c")
        await until(pilot, lambda: "OSC 52" in told(app))
        assert str(copied_file()) in told(app)
        assert copied_file().read_text() == app.clipboard == "yes"
        await ask(app, pilot, "/copy")
        assert f"also in {copied_file()}" in said(app)


@on_screen
async def test_a_slow_tool_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, taken = tmp_path / "gate", tmp_path / "taken"
    os.mkfifo(gate)
    (tmp_path / "xclip").write_text(f"#!/bin/sh\nread line < {gate}\ncat > {taken}\n")
    (tmp_path / "xclip").chmod(0o700)
    monkeypatch.setattr(clipboard, "PATIENCE", 60.0)
    monkeypatch.delenv("SSH_TTY")
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    async with running(says("yes")) as (app, pilot):
        await rests(app, pilot)
        await ask(app, pilot, "a")
        await pilot.press("alt+c", *"typed")
        assert app.composer.text == "typed"  # the tool still waits
        gate.write_text("go\n")
        await until(pilot, lambda: "copied 3 characters with xclip" in told(app))
        assert taken.read_text() == "yes"
