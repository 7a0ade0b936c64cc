from __future__ import annotations

from pathlib import Path

import pytest

from tests.options.sources import Sources


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sources:
    return Sources(tmp_path, monkeypatch)
