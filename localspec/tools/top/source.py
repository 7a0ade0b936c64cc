"""Where looks at a server come from: the server, or numbers made up to show what it would be like."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Protocol, Self

import httpx2

from localspec.errors import NetworkError, UsageError
from localspec.tools.top.reading import Counters, Reading, Slot, counters_of, model_of, slots_of
from localspec.types import SpecStats

_TIMEOUT = 5.0  # seconds
_NOT_THERE = (404, 501)


class Source(Protocol):
    """Something to look at."""

    @property
    def url(self) -> str: ...

    def look(self) -> Reading: ...


class ServerSource:
    """A server under its URL, with or without ``/v1``. It is only asked, never told anything.

    Args:
        transport: for tests.

    Raises:
        UsageError: it is no URL.
    """

    def __init__(self, url: str, api_key: str | None = None, transport: httpx2.BaseTransport | None = None) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        try:
            good = httpx2.URL(self.url).scheme in ("http", "https") and bool(httpx2.URL(self.url).host)
        except httpx2.InvalidURL:
            good = False
        if not good:
            raise UsageError(f"{url!r} is not the URL of a server", hint="Give one such as http://127.0.0.1:8080.")
        self._client = httpx2.Client(timeout=_TIMEOUT, headers=headers, transport=transport)
        self._model = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def look(self) -> Reading:
        """What the server tells now.

        Raises:
            NetworkError: it cannot be reached, refuses, or is no such server; it tells neither slots nor counters.
        """
        slots, metrics = self._get("/slots"), self._get("/metrics")
        if slots is None and metrics is None:
            raise NetworkError(
                f"{self.url} tells nothing about itself",
                hint="Start it with --slots and --metrics, or check the address.",
            )
        if not self._model:
            props = self._get("/props")
            self._model = model_of(None if props is None else _json(props))
        off = {"--slots": slots is None, "--metrics": metrics is None}
        return Reading(
            at=time.monotonic(),
            model=self._model,
            slots=None if slots is None else slots_of(_json(slots)),
            counters=None if metrics is None else counters_of(metrics.text),
            notes=tuple(f"more is known of a server that is started with {flag}" for flag, away in off.items() if away),
        )

    def _get(self, path: str) -> httpx2.Response | None:
        """``None``: this server has no such page."""
        try:
            response = self._client.get(self.url + path)
        except httpx2.TransportError as error:
            raise NetworkError(
                f"{self.url} cannot be reached ({str(error).strip() or type(error).__name__})",
                hint="Is the server running, and is this its address?",
            ) from None
        if response.status_code in _NOT_THERE:
            return None
        if response.status_code in (401, 403):
            raise NetworkError(f"{self.url} wants a key ({response.status_code})", hint="Give it with --api-key.")
        if response.status_code == 503:
            raise NetworkError(f"{self.url} is not ready (503)", hint="It may be loading its model; try again soon.")
        if response.status_code != 200:
            raise NetworkError(
                f"{self.url}{path} answers with status {response.status_code}", hint="Check the address."
            )
        return response


def _json(response: httpx2.Response) -> object:
    try:
        data: object = response.json()
    except ValueError:
        return None  # which the reader of this page refuses
    return data


class MockSource:
    """A server that nobody runs: two slots, of which the first is always busy. Each look is a second later."""

    url = "http://mock"

    def __init__(self) -> None:
        self._looks = 0

    def look(self) -> Reading:
        n = self._looks
        self._looks += 1
        drafts, accepted_at = 20 * n, (14 * n, 9 * n, 5 * n)
        return Reading(
            at=float(n),
            model="mock.gguf",
            slots=(
                Slot(0, True, n // 10, 4096, 100 + 48 * (n % 10), 48 * (n % 10)),
                Slot(1, False, -1, 4096, 0, 0),
            ),
            counters=Counters(
                prompt_n=100 * (1 + n // 10),
                cache_n=40 * (n // 10),
                prompt_s=0.25 * (1 + n // 10),
                predicted_n=480 * (n // 10),
                predicted_s=10.0 * (n // 10),
                waiting=0,
                stats=SpecStats(
                    drafted_steps=drafts, draft_n=3 * drafts, accepted=sum(accepted_at), accepted_at=accepted_at
                ),
            ),
        )
