"""Answers of any server that speaks OpenAI's protocol, measured as they stream in."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from localspec.client.asking import CHAT
from localspec.client.facts import facts
from localspec.client.line import Line
from localspec.client.numbers import drafted
from localspec.client.site import Site
from localspec.client.sse import events, lines, said
from localspec.client.web import checked, shown
from localspec.tools.bench.grid import unique
from localspec.tools.pairs import Run, Runner, Several
from localspec.tools.prompts import Prompt
from localspec.types import SamplingParams


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
        UsageError: a server does not have that model.
        NetworkError: it does not say which one it has.
    """

    def __init__(
        self,
        servers: Mapping[str | None, Server],
        sampling: SamplingParams,
        *,
        model: str | None = None,
        api_key: str | None = None,
    ) -> None:
        self._servers = servers
        self._sites = {one.url: Site(one.url, api_key) for one in servers.values()}
        self._sampling = sampling
        self.counted_by: set[str] = set()
        try:
            self.models = {one.name: facts(self._sites[one.url], model).model for one in servers.values()}
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
        return {one.name: shown(one.url) for one in self._servers.values()}

    def next_to(self, other: Runner, ways: Sequence[str]) -> Several:
        """These servers and ``other``, which has the settings ``ways``, and the baseline if no server is it."""
        return Several({None: other, **dict.fromkeys(ways, other), **dict.fromkeys(self._servers, self)})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for site in self._sites.values():
            site.close()

    def run(self, way: str | None, prompt: Prompt, tokens: int) -> Run:
        """As `Runner.run`.

        Raises:
            UsageError: the server takes the request to make no sense.
            NetworkError: it is gone, or answers with an error.
        """
        server = self._servers[way]
        site, body = self._sites[server.url], self._body(server, prompt, tokens)
        began = time.perf_counter()
        with site.stream(CHAT, body, Line().trace) as chunks:
            # Looked at when all is there: a server on this machine needs its cores meanwhile.
            arrivals = [(time.perf_counter(), data) for data in chunks]
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
