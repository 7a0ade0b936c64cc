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
