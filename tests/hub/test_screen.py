"""Downloads on the full screen, from a hub on this machine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from localspec.cli import downloads
from localspec.cli.downloads import ToldTransfer
from localspec.cli.screen import Models
from localspec.engine import Engine
from localspec.errors import Cancelled
from localspec.options import Values
from localspec.tui.engines import Listener
from tests.hub.conftest import CONTENT, NAME, REPO, Client, whole
from tests.hub.server import Fault
from tests.tui.support import FakeOpener, on_screen, rests, running, said, says, screen_text, turns, until

FROM_HUB = {"model": None, "hf_repo": REPO, "hf_token": None, "offline": False}
HALF = len(CONTENT) // 2


class Downloading(FakeOpener):
    """Finds models as the program does, and then loads none of them."""

    @contextmanager
    def open(self, values: Values, listener: Listener) -> Iterator[Engine]:
        Models().find(values, listener)
        with super().open(values, listener) as engine:
            yield engine


@pytest.fixture
def stalled(client: Client, one_repo: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The hub sends half of the file, and waits for this before it closes the connection."""
    event = threading.Event()
    client.hub.file_faults.append(Fault(cut=0.5, stall=event))
    monkeypatch.setattr(downloads, "INTERVAL", 0.0)
    yield event
    event.set()


@on_screen
async def _stopped_and_gone_on(client: Client, stalled: threading.Event) -> None:
    async with running(opener=Downloading(says("yes")), options=FROM_HUB, size=(110, 30)) as (app, pilot):
        await until(pilot, lambda: "#####----- 50 % · 384 kB of 768 kB" in screen_text(app))
        assert f"downloading {NAME} (768 kB); escape stops it" in said(app)
        await pilot.press(*"hello", "enter")
        await until(pilot, lambda: "waits: hello" in screen_text(app))
        await pilot.press("escape")
        stalled.set()
        await rests(app, pilot)
        assert "the download is stopped, and what arrived is kept. F5 goes on from there." in said(app)
        assert "no model: F5 loads it, F7 another" in screen_text(app)
        assert app.composer.text == "hello"  # it was not sent
        (partial,) = client.cache.glob("models--*/blobs/*.incomplete")
        assert partial.stat().st_size == HALF
        await pilot.press("f5")
        await rests(app, pilot)
        assert "384 kB of it are here already" in said(app)
        assert f"downloaded {NAME} (768 kB)" in said(app)
        assert client.hub.ranges == [None, f"bytes={HALF}-"]
        (path,) = client.cache.glob("models--*/snapshots/*/*.gguf")
        whole(path)
        await pilot.press("enter")
        await rests(app, pilot)
        assert turns(app) == [("hello", "yes")]


def test_escape_stops_it_and_it_goes_on_from_there(client: Client, stalled: threading.Event) -> None:
    _stopped_and_gone_on(client, stalled)


@on_screen
async def _narrow(stalled: threading.Event) -> None:
    async with running(opener=Downloading(says("yes")), options=FROM_HUB, size=(40, 12)) as (app, pilot):
        await until(pilot, lambda: "downloading #####----- 50 % · 384 kB" in screen_text(app))
        stalled.set()
        await rests(app, pilot)
        assert "ready" in screen_text(app)


def test_it_is_seen_in_forty_columns(stalled: threading.Event) -> None:
    _narrow(stalled)


class Heard:
    """A listener that stops when it is told to."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.notes: list[str] = []
        self.goes_on = True

    def doing(self, what: str, share: float | None = None) -> bool:
        self.lines.append(what)
        return self.goes_on

    def note(self, text: str) -> None:
        self.notes.append(text)


def _told(heard: Heard, times: list[float]) -> ToldTransfer:
    return ToldTransfer(heard, clock=lambda: times[0])


def test_bytes_rate_and_rest_are_told() -> None:
    heard, now = Heard(), [0.0]
    told = _told(heard, now)
    told.begin("folder/big-00002-of-00003.gguf", 10_000_000_000, 1_000_000_000)
    now[0] = 2.0
    told.advance(100_000_000)
    assert heard.lines == [
        "downloading #--------- 10 % · 1.0 GB of 10 GB · 2/3 big-00002-of-00003.gguf",
        "downloading #--------- 11 % · 1.1 GB of 10 GB · 50 MB/s · 3 min left · 2/3 big-00002-of-00003.gguf",
    ]
    now[0] = 2.01
    told.advance(1)
    assert len(heard.lines) == 2  # no more than somebody can read
    told.check()
    assert heard.lines[-1].startswith("checking 2/3 big")


@pytest.mark.parametrize(
    ("size", "seconds", "rest"), [(150, 1.0, "1 s left"), (100_000, 1.0, "17 min left"), (10**7, 1.0, "27.8 h left")]
)
def test_the_rest_is_told_roughly(size: int, seconds: float, rest: str) -> None:
    heard, now = Heard(), [0.0]
    told = _told(heard, now)
    told.begin("a.gguf", size, 0)
    now[0] = seconds
    told.advance(100)
    assert rest in heard.lines[-1]


def test_a_size_that_nobody_knows_and_a_name_that_steers_terminals() -> None:
    heard, now = Heard(), [0.0]
    told = _told(heard, now)
    told.begin("a\x1b[31m.gguf", None, 0)
    now[0] = 1.0
    told.advance(2000)
    assert heard.notes == ["downloading a�[31m.gguf (size unknown); escape stops it and keeps what arrived"]
    assert heard.lines[-1] == "downloading 2.0 kB · 2.0 kB/s · a�[31m.gguf"


@pytest.mark.parametrize("step", ["begin", "check", "note", "sleep"])
def test_it_can_be_stopped_wherever_it_is(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Heard()
    told = ToldTransfer(heard)
    heard.goes_on = False
    arguments: dict[str, tuple[Any, ...]] = {"begin": ("a", 1, 0), "note": ("x",), "sleep": (60.0,)}
    with pytest.raises(Cancelled, match="what arrived is kept"):
        getattr(told, step)(*arguments.get(step, ()))
