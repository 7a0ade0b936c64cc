"""Answers of any server that speaks OpenAI's protocol, measured as they stream in."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import httpx2

from localspec.errors import NetworkError
from localspec.tools.pairs import Run
from localspec.tools.prompts import Prompt
from localspec.types import SamplingParams, SpecStats

_TIMEOUT = httpx2.Timeout(10, read=600)


class ServerRunner:
    """Answers from servers: setting → base URL, with or without its ``/v1``; ``None`` → the one to compare with.

    Tokens are those that the server counts (``usage``); where it does not, chunks with text stand for them. An answer
    may end before its limit.

    Raises:
        NetworkError: a server does not say which model it has.
    """

    def __init__(
        self,
        servers: Mapping[str | None, str],
        sampling: SamplingParams,
        *,
        model: str | None = None,
        api_key: str | None = None,
    ) -> None:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._client = httpx2.Client(timeout=_TIMEOUT, headers=headers)
        self._servers = {way: url.rstrip("/").removesuffix("/v1") for way, url in servers.items()}
        self._sampling = sampling
        self.counted_by: set[str] = set()
        try:
            self.models = {way: model or self._model(url) for way, url in self._servers.items()}
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._client.close()

    def _model(self, url: str) -> str:
        """The first model that a server lists."""
        try:
            found = self._client.get(f"{url}/v1/models").raise_for_status().json()
            return str(found["data"][0]["id"])
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise _unreachable(url, error) from error
        except (ValueError, LookupError, TypeError) as error:
            raise NetworkError(
                f"{url}/v1/models lists no model", hint="Name one with --server-model, or check the URL."
            ) from error

    def run(self, way: str | None, prompt: Prompt, tokens: int) -> Run:
        """As `Runner.run`.

        Raises:
            NetworkError: the server is gone, or answers with an error.
        """
        url = self._servers[way]
        try:
            with self._client.stream("POST", f"{url}/v1/chat/completions", json=self._body(way, prompt, tokens)) as got:
                if got.is_error:
                    got.read()
                    raise NetworkError(
                        f"{url} answers {got.status_code}: {' '.join(got.text.split())[:200]}",
                        hint="Check the URL and --server-model.",
                    )
                return self._read(got.iter_lines())
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise _unreachable(url, error) from error

    def _body(self, way: str | None, prompt: Prompt, tokens: int) -> dict[str, Any]:
        return {
            "model": self.models[way],
            "messages": [{"role": one.role, "content": one.content} for one in prompt.messages],
            "max_tokens": tokens,
            "temperature": self._sampling.temperature,
            "seed": self._sampling.seed,
            "stream": True,
            "stream_options": {"include_usage": True},
        }

    def _read(self, lines: Iterator[str]) -> Run:
        """One stream. Clocks start at the first chunk with text: the prompt is not part of the speed."""
        text: list[str] = []
        first = last = 0.0
        usage: Mapping[str, Any] = {}
        timings: Mapping[str, Any] = {}
        for event in _events(lines):
            now = time.perf_counter()
            usage = event.get("usage") or usage
            timings = event.get("timings") or timings
            if piece := _piece(event):
                text.append(piece)
                first, last = first or now, now
        counted = usage.get("completion_tokens")
        self.counted_by.add("usage" if counted else "chunks")
        n = int(counted or len(text))
        speed = (n - 1) / (last - first) if n > 1 and last > first else None
        return Run(n, speed, "".join(text), _stats(timings))


def _events(lines: Iterator[str]) -> Iterator[Mapping[str, Any]]:
    """The objects of a stream of server-sent events.

    Raises:
        NetworkError: a line is none, or the server reports an error.
    """
    for line in lines:
        data = line.removeprefix("data:").strip()
        if not line.startswith("data:") or data == "[DONE]":
            continue
        try:
            event = json.loads(data)
        except ValueError:
            event = None
        if not isinstance(event, dict) or "error" in event:
            raise NetworkError(f"the server sends {data[:200]}", hint="See its log.")
        yield event


def _piece(event: Mapping[str, Any]) -> str:
    choices: Sequence[Mapping[str, Any]] = event.get("choices") or ({},)
    delta = choices[0].get("delta") or {}
    return (delta.get("reasoning_content") or "") + (delta.get("content") or "")


def _stats(timings: Mapping[str, Any]) -> SpecStats | None:
    """llama.cpp's servers say how many guesses were made, and how many held; others say nothing."""
    drafted = timings.get("draft_n")
    return SpecStats(draft_n=drafted, accepted=timings.get("draft_n_accepted", 0)) if drafted else None


def _unreachable(url: str, error: Exception) -> NetworkError:
    return NetworkError(f"{url} cannot be reached: {error}", hint="Check that the server runs and the URL is right.")
