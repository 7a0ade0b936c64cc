"""Answers of any server that speaks OpenAI's protocol, measured as they stream in."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import httpx2

from localspec.client.numbers import drafted
from localspec.client.sse import events, lines, said
from localspec.client.web import checked, client, root, unreachable
from localspec.errors import NetworkError
from localspec.tools.bench.grid import unique
from localspec.tools.pairs import Run, Runner, Several
from localspec.tools.prompts import Prompt
from localspec.types import SamplingParams

_TIMEOUT = httpx2.Timeout(10, read=600)


@dataclass(frozen=True, slots=True)
class Server:
    """A server under a name for tables."""

    name: str
    url: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """``[NAME=]URL``; without a name, the URL is it.

        Raises:
            UsageError: it is no URL.
        """
        name, _, url = text.partition("=")
        found = cls(name.strip(), url.strip()) if url and "://" not in name else cls(text, text)
        checked(found.url)
        return found

    @property
    def root(self) -> str:
        """Its URL without ``/v1``."""
        return root(self.url)


def servers(texts: Sequence[str], baseline: str | None) -> dict[str | None, Server]:
    """Setting → its server; ``None`` → the one to compare with, if one is named.

    Raises:
        UsageError: two of one name, or one that is no URL.
    """
    found = [Server.parse(text) for text in texts]
    by_way: dict[str | None, Server] = dict(zip(unique(tuple(one.name for one in found)), found, strict=True))
    return by_way if baseline is None else {**by_way, None: Server.parse(baseline)}


class ServerRunner:
    """Answers from servers: setting → the server; ``None`` → the one to compare with.

    Tokens are those that the server counts (``usage``); where it does not, chunks with text stand for them. An answer
    may end before its limit.

    Raises:
        NetworkError: a server does not say which model it has.
    """

    def __init__(
        self,
        servers: Mapping[str | None, Server],
        sampling: SamplingParams,
        *,
        model: str | None = None,
        api_key: str | None = None,
    ) -> None:
        self._client = client(_TIMEOUT, api_key)
        self._servers = servers
        self._sampling = sampling
        self.counted_by: set[str] = set()
        try:
            self.models = {one.name: model or self._model(one) for one in servers.values()}
        except BaseException:
            self.close()
            raise

    @property
    def settings(self) -> tuple[str, ...]:
        """Names of those that are compared."""
        return tuple(way for way in self._servers if way is not None)

    @property
    def baseline(self) -> str | None:
        """Name of the one to compare with."""
        return self._servers[None].name if None in self._servers else None

    @property
    def urls(self) -> dict[str, str]:
        """Name → URL."""
        return {one.name: one.url for one in self._servers.values()}

    def next_to(self, other: Runner, ways: Sequence[str]) -> Several:
        """These servers and ``other``, which has the settings ``ways``, and the baseline if no server is it."""
        return Several({None: other, **dict.fromkeys(ways, other), **dict.fromkeys(self._servers, self)})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def _model(self, server: Server) -> str:
        """The first model that a server lists."""
        url = server.root
        try:
            found = self._client.get(f"{url}/v1/models").raise_for_status().json()
            return str(found["data"][0]["id"])
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise unreachable(url, error) from error
        except (ValueError, LookupError, TypeError) as error:
            raise NetworkError(
                f"{url}/v1/models lists no model", hint="Name one with --server-model, or check the URL."
            ) from error

    def run(self, way: str | None, prompt: Prompt, tokens: int) -> Run:
        """As `Runner.run`.

        Raises:
            NetworkError: the server is gone, or answers with an error.
        """
        server = self._servers[way]
        url, body = server.root, self._body(server, prompt, tokens)
        began = time.perf_counter()
        try:
            with self._client.stream("POST", f"{url}/v1/chat/completions", json=body) as got:
                if got.is_error:
                    got.read()
                    raise NetworkError(
                        f"{url} answers {got.status_code}: {' '.join(got.text.split())[:200]}",
                        hint="Check the URL and --server-model.",
                    )
                # Looked at when all is there: a server on this machine needs its cores meanwhile.
                arrivals = [(time.perf_counter(), data) for data in got.iter_bytes()]
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise unreachable(url, error) from error
        return self._read(arrivals, began)

    def _body(self, server: Server, prompt: Prompt, tokens: int) -> dict[str, Any]:
        return {
            "model": self.models[server.name],
            "messages": [{"role": one.role, "content": one.content} for one in prompt.messages],
            "max_tokens": tokens,
            "temperature": self._sampling.temperature,
            "seed": self._sampling.seed,
            "stream": True,
            "stream_options": {"include_usage": True},
        }

    def _read(self, arrivals: Sequence[tuple[float, bytes]], began: float) -> Run:
        """One stream. The speed's clock starts at the first chunk with text: the prompt is not part of it."""
        text: list[str] = []
        first = last = 0.0
        usage: Mapping[str, Any] = {}
        timings: Mapping[str, Any] = {}
        for now, event in events(lines(arrivals)):
            usage = event.get("usage") or usage
            timings = event.get("timings") or timings
            if piece := said(event):
                text.append(piece)
                first, last = first or now, now
        counted = usage.get("completion_tokens")
        self.counted_by.add("usage" if counted else "chunks")
        n = int(counted or len(text))
        speed = (n - 1) / (last - first) if n > 1 and last > first else None
        ended = arrivals[-1][0] if arrivals else began
        return Run(n, speed, "".join(text), ended - began, stats=drafted(timings))
