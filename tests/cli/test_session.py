"""Which files a command loads."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.cli import session, transfer
from localspec.cli.session import Progress, model_files
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


def test_progress_is_one_line_that_goes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(session, "at_terminal", lambda: True)
    progress = Progress()
    with progress.loading(Path("models/big.gguf"), Path("small.gguf")):
        assert capsys.readouterr().err == "loading big.gguf …\r"
        progress.stage("target", 0.4)
        progress.stage("target", 0.4)
        assert capsys.readouterr().err == "loading big.gguf … 40 %\r"
        progress.stage("draft", 1.0)
        last = "getting small.gguf ready …"
        assert capsys.readouterr().err == f"{last}\r"
    assert capsys.readouterr().err == f"{' ' * len(last)}\r"
    with Progress(shows=False).loading(None, None):
        assert capsys.readouterr().err == ""


def test_progress_is_for_terminals(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress().loading(Path("a.gguf"), None):
        pass
    assert capsys.readouterr().err == ""


def test_what_is_fetched_stands_in_for_what_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(transfer, "fetch", lambda ref, _: tmp_path / f"{ref}".replace("/", "-"))
    files = model_files({**NOTHING, "hf_repo": "user/a", "hf_repo_draft": "user/b"})
    assert files == (tmp_path / "user-a", tmp_path / "user-b")
