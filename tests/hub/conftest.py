from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from localspec.hub import HubRef, Patience, resolve
from tests.hub.server import FakeHub, fake_hub

REPO = "user/model-GGUF"
NAME = "model-Q4_K_M.gguf"
CONTENT = b"GGUF" + bytes(range(256)) * 3000
SHA = hashlib.sha256(CONTENT).hexdigest()
VARIABLES = (
    "LLAMA_CACHE",
    "HUGGINGFACE_HUB_CACHE",
    "HF_HOME",
    "XDG_CACHE_HOME",
    "MODEL_ENDPOINT",
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "HF_HUB_OFFLINE",
)


@dataclass
class Watched:
    """Remembers what a `Watcher` is told."""

    begun: list[tuple[str, int | None, int]] = field(default_factory=list)
    done: int = 0
    ended: list[bool] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def begin(self, name: str, size: int | None, done: int) -> None:
        self.begun.append((name, size, done))
        self.done = done

    def advance(self, count: int) -> None:
        self.done += count

    def check(self) -> None:
        pass

    def end(self, whole: bool) -> None:
        self.ended.append(whole)

    def note(self, text: str) -> None:
        self.notes.append(text)


@dataclass
class Client:
    """`resolve` with a clock that does not wait."""

    hub: FakeHub
    cache: Path
    watched: Watched = field(default_factory=Watched)
    slept: list[float] = field(default_factory=list)

    def get(
        self, ref: str, file: str | None = None, *, offline: bool = False, token: str | None = None, timeout: float = 5
    ) -> Path:
        return resolve(
            HubRef.parse(ref, file),
            progress=self.watched,
            offline=offline,
            token=token,
            patience=Patience(tries=3, timeout=timeout, sleep=self.slept.append),
        )

    def stored(self) -> list[str]:
        """Names of all blobs, the incomplete ones too."""
        return sorted(path.name for path in self.cache.glob("models--*/blobs/*"))


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with fake_hub() as hub:
        yield hub


@pytest.fixture
def client(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    """A client of the fake hub with a cache of its own."""
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))  # no token of the person who runs the tests
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "token"))
    return Client(hub, tmp_path / "hub")


@pytest.fixture
def one_repo(hub: FakeHub) -> None:
    """A repository on the fake hub with `CONTENT` as its Q4_K_M."""
    hub.repos[REPO] = {"README.md": b"# model", NAME: CONTENT, "model-Q8_0.gguf": b"GGUF eight"}


def whole(path: Path) -> None:
    """Checks that `CONTENT` arrived."""
    assert path.read_bytes() == CONTENT
    assert path.name == NAME
