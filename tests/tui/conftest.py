"""What the screen must leave alone while it is tested."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tui.support import frame, idle

#: Modules whose tests look at what is painted between one key and the next.
PAINTED = {"test_growing", "test_scenes"}


@pytest.fixture(autouse=True)
def _no_clipboard(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The clipboard of whoever runs the tests: over ssh it is the terminal's."""
    folder = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("SSH_TTY", "away")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    return folder


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Textual waits after every key until the process computes nothing, and the screen after a look as long as looking
    took, many times over; most of the time that these tests took went there. What comes from elsewhere is waited for
    by what is expected of it."""
    if request.module.__name__.rpartition(".")[2] not in PAINTED:
        monkeypatch.setattr("textual.app.wait_for_idle", idle)
    monkeypatch.setattr("textual.pilot.wait_for_idle", frame)
    monkeypatch.setattr("localspec.tui.app.PARTS", 0)
    # A line that is looked for is not gone meanwhile, on however busy a machine.
    monkeypatch.setattr("localspec.tui.app.GLANCE", 60.0)
    monkeypatch.setattr("localspec.tui.app.LocalspecApp.NOTIFICATION_TIMEOUT", 60.0)
