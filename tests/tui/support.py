"""The screen over engines without weights, in this process."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, ParamSpec

from textual.pilot import Pilot

from localspec.backends.base import Rows, Work
from localspec.engine import Engine
from localspec.errors import LocalspecError
from localspec.options import Values
from localspec.talk.catalogue import Catalogue, Model
from localspec.tui.app import LocalspecApp
from localspec.tui.engines import Listener
from localspec.tui.turns import Quiet, Turn
from tests.cli.repl.support import engine, values
from tests.cli.scripted import Scripted

P = ParamSpec("P")
SECONDS = 20.0
#: Of the event loop at most, where another thread always brings more.
TURNS = 300


class Gated(Scripted):
    """Can be held: passes wait then.

    Attributes:
        free: passes until it waits; ``None``: it never does.
        held: it waits, or did.
    """

    def __init__(self, pieces: Sequence[str], *, n_ctx: int = 4096) -> None:
        super().__init__(pieces, n_ctx=n_ctx)
        self.gate = threading.Event()
        self.free: int | None = None
        self.held = threading.Event()

    def let_go(self) -> None:
        self.free = None
        self.gate.set()

    def forward(self, work: Sequence[Work]) -> list[Rows]:
        if self.free is not None:
            self.free -= 1
            if self.free < 0:
                self.held.set()
                assert self.gate.wait(3 * SECONDS)  # what it is held for may take as long as it may
        return super().forward(work)


class Listed(Catalogue):
    """A catalogue of these models; the first is the one that is used."""

    def __init__(self, *models: Model) -> None:
        super().__init__()
        self._models = models

    def scan(self) -> Iterator[Model]:
        yield from self._models

    def model(self, path: Path, name: str | None = None) -> Model | None:
        return next(self.scan(), None)


class FakeOpener:
    """Gives engines, or fails, in this order; the last again and again.

    Attributes:
        gate: loading waits for it.
        models: to choose from.
    """

    def __init__(self, *engines: Engine | LocalspecError) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.opened: list[Values] = []
        self.models = Listed()
        self._engines = [*engines]

    def find(self, values: Values, listener: Listener) -> None:
        pass

    @contextmanager
    def open(self, values: Values, listener: Listener) -> Iterator[Engine]:
        self.opened.append(values)
        listener.doing("loading fake.gguf …", 0.5)
        assert self.gate.wait(SECONDS)
        made = self._engines.pop(0) if len(self._engines) > 1 else self._engines[0]
        if isinstance(made, LocalspecError):
            raise made
        yield made

    def catalogue(self, used: Sequence[Path]) -> Catalogue:
        return self.models

    def measured(self, target: Path, draft: Path | None) -> float | None:
        return None


def says(*pieces: str) -> Engine:
    """An engine that answers so."""
    return engine(Gated(pieces))


def hold(app: LocalspecApp, *, after: int = 0) -> None:
    """The engine waits after so many passes."""
    target = target_of(app)
    target.gate.clear()
    target.held.clear()
    target.free = after


def release(app: LocalspecApp) -> None:
    target_of(app).let_go()


def target_of(app: LocalspecApp) -> Gated:
    running = app.conductor.chat.engine
    assert isinstance(running, Engine)
    assert isinstance(running.target, Gated)
    return running.target


@asynccontextmanager
async def running(
    *engines: Engine | LocalspecError,
    size: tuple[int, int] = (100, 30),
    opener: FakeOpener | None = None,
    options: dict[str, Any] | None = None,
    notifications: bool = False,
    **more: Any,
) -> AsyncIterator[tuple[LocalspecApp, Pilot[None]]]:
    """The app, when its first frame is there. ``options`` change those of the chat, ``more`` goes to the app.
    ``notifications``: lines that go away by themselves are drawn."""
    chosen = values(n_predict=-1, ignore_eos=False, **(options or {}))
    app = LocalspecApp(opener or FakeOpener(*(engines or (engine(),))), chosen, **more)
    try:
        async with app.run_test(size=size, notifications=notifications) as pilot:
            yield app, pilot
    finally:
        app.conductor.close()


async def idle(*_: float) -> None:
    """Until all that was posted is done; what time or another thread is going to bring is not waited for."""
    loop = asyncio.get_running_loop()
    for _turn in range(TURNS):
        await asyncio.sleep(0)
        if not loop._ready:  # type: ignore[attr-defined]
            return


async def until(pilot: Pilot[None], holds: Callable[[], bool]) -> None:
    """Waits for what another thread brings about."""
    for _ in range(int(SECONDS / 0.02)):
        if holds():
            return
        await asyncio.sleep(0.02)  # not `pilot.pause`, which asks every widget each time
    raise AssertionError(f"never came true; on the screen:\n{screen_text(pilot.app)}")


async def rests(app: LocalspecApp, pilot: Pilot[None]) -> None:
    """Until nothing runs or waits, and the screen shows it."""
    await until(pilot, lambda: app.settled)
    await idle()


async def ask(app: LocalspecApp, pilot: Pilot[None], text: str) -> None:
    """Sends a message and waits for the end of its answer."""
    app.composer.write(text)
    await pilot.press("enter")
    await rests(app, pilot)


def turns(app: LocalspecApp) -> list[tuple[str, str]]:
    """Questions and answers on the screen."""
    return [(turn.question, turn.answer) for turn in app.transcript.query(Turn) if turn.display]


def said(app: LocalspecApp) -> str:
    """Everything beside the turns."""
    return "\n".join(one.text for one in app.transcript.query(Quiet))


def told(app: LocalspecApp) -> str:
    """The newest of the lines that go away by themselves."""
    return next((one.message for one in reversed([*app._notifications])), "")


def screen_text(app: Any) -> str:
    """What stands on the screen."""
    width = app.size.width
    lines = app.screen._compositor.render_strips(app.size)
    return "\n".join("".join(segment.text for segment in strip)[:width].rstrip() for strip in lines)


def on_screen(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test that runs in an event loop of its own."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


Scenario = Callable[[LocalspecApp, Pilot[None]], Awaitable[None]]
