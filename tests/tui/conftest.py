"""What the screen must leave alone while it is tested."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _no_clipboard(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The clipboard of whoever runs the tests: over ssh it is the terminal's."""
    folder = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("SSH_TTY", "away")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    return folder


@pytest.fixture(autouse=True)
def _lines_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that is looked for is not gone meanwhile, on however busy a machine; and the screen does not rest after a
    look for as long as looking took, many times over."""
    monkeypatch.setattr("localspec.tui.app.PARTS", 0)
    monkeypatch.setattr("localspec.tui.app.GLANCE", 60.0)
    monkeypatch.setattr("localspec.tui.app.LocalspecApp.NOTIFICATION_TIMEOUT", 60.0)
