"""Where readings come from: a server, or a play without one."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import httpx2

from localspec.client.prometheus import parse
from localspec.client.web import checked, client, root, unreachable
from localspec.errors import NetworkError
from localspec.tools.top.reading import Reading, Slot, metrics_of, model_of, slots_of

#: Seconds that a server may take for an answer: it is asked while it computes.
_PATIENCE = 3.0
_MEND = {"/slots": "start the server without --no-slots", "/metrics": "start the server with --metrics"}


class Source(Protocol):
    """Gives readings. ``url`` names it."""

    url: str

    def read(self) -> Reading:
        """What the server says now.

        Raises:
            NetworkError: it does not answer, or is no such server.
        """

    def close(self) -> None: ...


class Server:
    """A llama.cpp server, or another one with its endpoints.

    Args:
        clock: seconds.

    Raises:
        UsageError: the URL is none.
    """

    def __init__(self, url: str, *, api_key: str | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.url = root(checked(url))
        self._clock = clock
        self._client = client(_PATIENCE, api_key)

    def close(self) -> None:
        self._client.close()

    def read(self) -> Reading:
        health = self._get("/health")
        if health.status_code == httpx2.codes.SERVICE_UNAVAILABLE:
            return Reading(self._clock(), ready=False)
        if health.is_error:
            raise NetworkError(
                f"{self.url}/health answers {health.status_code}", hint="Check that it is a llama.cpp server."
            )
        missing: list[str] = []
        model, build = model_of(self._told("/props", missing))
        slots = slots_of(self._told("/slots", missing))
        page = self._page("/metrics", missing)
        metrics, accepted_at = (None, ()) if page is None else metrics_of(parse(page.text))
        return Reading(self._clock(), True, model, build, slots, metrics, accepted_at, tuple(missing))

    def _get(self, path: str) -> httpx2.Response:
        try:
            return self._client.get(f"{self.url}{path}")
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise unreachable(self.url, error) from error

    def _page(self, path: str, missing: list[str]) -> httpx2.Response | None:
        """``None`` where it is refused, and why."""
        answer = self._get(path)
        if answer.status_code in (httpx2.codes.UNAUTHORIZED, httpx2.codes.FORBIDDEN):
            raise NetworkError(f"{self.url}{path} wants another key", hint="Give it with --api-key.")
        if answer.is_error:
            mend = _MEND.get(path)
            missing.append(f"{path} answers {answer.status_code}" + (f": {mend}" if mend else ""))
            return None
        return answer

    def _told(self, path: str, missing: list[str]) -> Any:
        page = self._page(path, missing)
        try:
            return None if page is None else page.json()
        except ValueError:
            missing.append(f"{path} is no JSON")
            return None


class Mock:
    """A server that is none, with two slots: answers come and go, guesses hold more or less. The same from the same
    seed."""

    url = "mock"

    def __init__(self, *, step: float = 1.0, seed: int = 1) -> None:
        self._chance = random.Random(seed)
        self._step = step
        self._at = 0.0
        self._slots = [Slot(number, None, 8192, False, 0, 0, True) for number in range(2)]
        self._task = 0
        self._counts = dict.fromkeys(("tokens", "prompt", "drafts", "guesses"), 0.0)
        self._accepted = [0.0] * 4

    def close(self) -> None:
        pass

    def read(self) -> Reading:
        self._at += self._step
        self._slots = [self._on(slot) for slot in self._slots]
        counts = {
            "tokens_predicted_total": self._counts["tokens"],
            "prompt_tokens_total": self._counts["prompt"],
            "requests_processing": float(sum(slot.busy for slot in self._slots)),
            "requests_deferred": 0.0,
            "spec_decode_num_drafts_total": self._counts["drafts"],
            "spec_decode_num_draft_tokens_total": self._counts["guesses"],
            "spec_decode_num_accepted_tokens_total": sum(self._accepted),
        }
        accepted = tuple(self._accepted)
        return Reading(self._at, True, "mock-model.gguf", "mock", tuple(self._slots), counts, accepted)

    def _on(self, slot: Slot) -> Slot:
        """One step later."""
        if not slot.busy:
            if self._chance.random() < 0.6:
                return slot
            self._task += 1
            prompt = self._chance.randint(40, 900)
            self._counts["prompt"] += prompt
            return replace(slot, task=self._task, busy=True, cached=prompt, decoded=0)
        if slot.decoded > self._chance.randint(200, 900):
            self._counts["tokens"] += slot.decoded
            return replace(slot, busy=False, decoded=0)
        came = self._steps()
        return replace(slot, decoded=slot.decoded + came, cached=slot.cached + came)

    def _steps(self) -> int:
        """Tokens that came, each step with guesses until one does not hold."""
        tokens = 0
        for _ in range(round(self._chance.uniform(8, 14) * self._step)):
            held = 0
            while held < len(self._accepted) and self._chance.random() < 0.7:
                self._accepted[held] += 1
                held += 1
            self._counts["drafts"] += 1
            self._counts["guesses"] += len(self._accepted)
            tokens += held + 1
        return tokens
