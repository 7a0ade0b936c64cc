"""What the program hands to the full screen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from localspec.cli import screen
from tests.talk.models import write


class Deaf:
    """Hears nothing."""

    def doing(self, what: str, share: float | None = None) -> bool:
        return True

    def note(self, text: str) -> None:
        pass


def test_what_was_loaded_last_is_offered_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    target, draft = write(tmp_path / "target.gguf"), write(tmp_path / "draft.gguf")

    @contextmanager
    def loaded(values: object, progress: object) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(info=SimpleNamespace(target=str(target), draft=str(draft), server=None))

    monkeypatch.setattr(screen, "engine_for", loaded)
    models = screen.Models()
    with models.open({}, Deaf()):
        pass
    found = models.catalogue([]).scan()
    assert [next(found).path, next(found).path] == [target, draft]
    assert models.measured(target, draft) is None
