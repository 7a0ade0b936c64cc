"""Which files a command loads."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.cli import transfer
from localspec.cli.session import model_files
from localspec.errors import ModelError

NOTHING = dict.fromkeys(("model", "hf_repo", "hf_file", "model_draft", "hf_repo_draft", "hf_file_draft"))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"hf_repo": "user/repo", "model_draft": "missing.gguf"}, "the draft model: missing.gguf does not exist"),
        ({"model": "missing.gguf", "hf_repo_draft": "user/repo"}, "^missing.gguf does not exist"),
    ],
)
def test_files_are_looked_for_before_anything_is_fetched(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], says: str
) -> None:
    monkeypatch.setattr(transfer, "fetch", lambda *_: pytest.fail("it was fetched"))
    with pytest.raises(ModelError, match=says) as caught:
        model_files({**NOTHING, **given})
    assert caught.value.hint == "Check the path."


def test_what_is_fetched_stands_in_for_what_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(transfer, "fetch", lambda ref, _: tmp_path / f"{ref}".replace("/", "-"))
    files = model_files({**NOTHING, "hf_repo": "user/a", "hf_repo_draft": "user/b"})
    assert files == (tmp_path / "user-a", tmp_path / "user-b")
