"""A server of a test: in a thread of its own, at a port of the kernel's choice, over an engine without weights."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx2

from localspec.host import HostedEngine
from localspec.server.desk import EnginePort
from localspec.server.run import Load, Plan, Serving
from localspec.server.setting import Setting
from localspec.types import GenerationRequest, SamplingParams, SpecParams
from tests.server import factories
from tests.server.factories import Options

BASE = GenerationRequest(
    prompt="", max_tokens=12, special=True, sampling=SamplingParams(temperature=0.0, seed=1), spec=SpecParams(depth=4)
)
HELLO = [{"role": "user", "content": "hello"}]


@dataclass
class Site:
    """A server and a client of it."""

    serving: Serving
    client: httpx2.Client
    said: list[str]

    @property
    def url(self) -> str:
        return self.serving.url

    def post(self, path: str, body: Any, **headers: str) -> httpx2.Response:
        return self.client.post(path, json=body, headers=headers)

    def ask(self, path: str, **fields: Any) -> Any:
        """What comes of a request that goes well."""
        got = self.post(path, fields)
        assert got.status_code == 200, got.text
        return got.json()

    def chat(self, **fields: Any) -> Any:
        return self.ask("/v1/chat/completions", **{"messages": HELLO, **fields})

    def stream(self, path: str, **fields: Any) -> list[Any]:
        """The events of a stream, ``[DONE]`` among them."""
        with self.client.stream("POST", path, json={"stream": True, **fields}) as got:
            assert got.status_code == 200, got.read()
            assert got.headers["content-type"].startswith("text/event-stream")
            lines = [line.removeprefix("data: ") for line in got.iter_lines() if line.startswith("data: ")]
        return [line if line == "[DONE]" else json.loads(line) for line in lines]

    def fault(self, path: str, body: Any, status: int = 400) -> Any:
        """What is told of a request that makes no sense."""
        got = self.client.post(path, **({"content": body} if isinstance(body, bytes) else {"json": body}))
        assert got.status_code == status, got.text
        error = got.json()["error"]
        assert error.keys() >= {"message", "type", "param", "code"}
        return error

    @property
    def engine(self) -> HostedEngine:
        found = self.serving.desk.engine
        assert isinstance(found, HostedEngine)
        return found

    @property
    def open(self) -> int:
        """Answers that run or wait."""
        reading = self.serving.ledger.read()
        return reading.running + reading.waiting


@contextmanager
def serving(
    options: Options | None = None, *, base: GenerationRequest = BASE, wait: bool = True, **plan: Any
) -> Iterator[Site]:
    """A server over a model without weights, that has it, unless it is not to be waited for."""
    options = options or Options()
    settled = Plan(**{"port": 0, "drain_s": 5, "sequences": options.sequences, **plan})

    def load(wanted: Callable[[], bool]) -> tuple[EnginePort, Setting]:
        engine = HostedEngine(options, factory=factories.engine, on_progress=lambda _stage, _share: wanted())
        vocab = factories.vocabulary(options.script)
        return engine, Setting(base, engine.info, vocab, places=settled.places)

    with served_by(settled, load, wait=wait) as site:
        yield site


@contextmanager
def served_by(plan: Plan, load: Load, *, wait: bool = True) -> Iterator[Site]:
    """A server with whatever ``load`` makes.

    Raises:
        LocalspecError: it could not be loaded.
    """
    said, faults = list[str](), list[BaseException]()
    server = Serving(plan, load, said.append)
    thread = threading.Thread(target=_run, args=(server, faults))
    thread.start()
    try:
        with httpx2.Client(base_url=server.url, timeout=60) as client:
            if wait:
                until(lambda: server.desk.state == "ready" or bool(faults), 60)
            if faults:
                raise faults[0]
            yield Site(server, client, said)
    finally:
        server.stop()
        thread.join(30)
        assert not thread.is_alive()


def _run(server: Serving, faults: list[BaseException]) -> None:
    try:
        server.run()
    except BaseException as error:
        faults.append(error)


def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Waits for what comes soon."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)
