"""Many clients of one server at once, who stream, wait, and leave in the middle: ``python -m scripts.soak``.

Every whole answer must be the one that the same prompt gets alone, at temperature 0 and with a seed above it; the
engine's memory must not grow after the first quarter of the time. Ends with code 1 where that is not so. With ``--url``
a running server is asked; else one of a model without weights is started here. Quantised weights round by the rows
beside them: with ``--rounds`` an answer may part from the one alone, but must not hold the word of another client.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import httpx2

from localspec.tools.top.prometheus import parse

_TOKENS = 60
#: Memory may grow by so much after it has settled.
_GROWTH = 1.05


@dataclass
class Tally:
    """What clients saw, all of them together."""

    same: int = 0
    parted: int = 0
    left: int = 0
    turned_away: int = 0
    wrong: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, **counts: int) -> None:
        with self.lock:
            for name, count in counts.items():
                setattr(self, name, getattr(self, name) + count)


def body(word: str) -> dict[str, Any]:
    """The request of a client: its word, to be gone on with, half of the words by chance."""
    chance = {"temperature": 1.0, "seed": len(word) * 7 + ord(word[-1])} if ord(word[-1]) % 2 else {"temperature": 0}
    return {"prompt": f"{word} ", "max_tokens": _TOKENS, **chance}


def expected(url: str, word: str) -> str:
    """What the word gets when nobody else asks, without guesses."""
    got = httpx2.post(f"{url}/v1/completions", json={**body(word), "speculative": "off"}, timeout=120)
    text: str = got.raise_for_status().json()["choices"][0]["text"]
    return text


class Client:
    """Asks for its word, again and again, and sometimes leaves before it is told."""

    def __init__(
        self, url: str, word: str, alone: Mapping[str, str], chance: random.Random, tally: Tally, rounds: bool = False
    ) -> None:
        self._url = f"{url}/v1/completions"
        self._word = word
        self._alone = alone
        self._chance = chance
        self._tally = tally
        self._rounds = rounds

    def run(self, *, rounds: int | None = None, until: float = 0.0) -> None:
        """So many rounds, or until this moment of the monotonic clock."""
        with httpx2.Client(timeout=120) as client:
            done = 0
            while done < rounds if rounds is not None else time.monotonic() < until:
                done += 1
                self._round(client)

    def _round(self, client: httpx2.Client) -> None:
        asked = {**body(self._word), "speculative": self._chance.choice(("auto", "fixed", "off"))}
        way = self._chance.randrange(4)
        if way == 0:
            self._leave(client, asked)
        elif way == 1:
            self._stream(client, asked)
        else:
            got = client.post(self._url, json=asked)
            if self._is_in(got):
                self._judge(got.json()["choices"][0]["text"])

    def _leave(self, client: httpx2.Client, asked: dict[str, Any]) -> None:
        """In the middle of the stream, or before anything comes."""
        try:
            quick = httpx2.Timeout(120, read=self._chance.uniform(0.001, 0.05))
            with client.stream("POST", self._url, json={**asked, "stream": True}, timeout=quick) as got:
                for _, _line in zip(range(self._chance.randrange(6)), got.iter_lines(), strict=False):
                    pass
        except httpx2.TimeoutException:
            pass
        self._tally.add(left=1)

    def _stream(self, client: httpx2.Client, asked: dict[str, Any]) -> None:
        with client.stream("POST", self._url, json={**asked, "stream": True}) as got:
            if not self._is_in(got):
                return
            lines = [line.removeprefix("data: ") for line in got.iter_lines() if line.startswith("data: ")]
        events = [json.loads(line) for line in lines if line != "[DONE]"]
        self._judge("".join(event["choices"][0]["text"] for event in events))

    def _is_in(self, got: httpx2.Response) -> bool:
        """A full queue is no fault, if it says when to come again."""
        if got.status_code == httpx2.codes.SERVICE_UNAVAILABLE and "retry-after" in got.headers:
            self._tally.add(turned_away=1)
            time.sleep(0.05)
            return False
        if got.is_error:
            got.read()
            with self._tally.lock:
                self._tally.wrong.append(f"{got.status_code}: {got.text[:200]}")
            return False
        return True

    def _judge(self, text: str) -> None:
        alone = self._alone[self._word]
        if text == alone:
            self._tally.add(same=1)
            return
        foreign = [word for word in self._alone if word != self._word and word in text and word not in alone]
        if self._rounds and not foreign:
            self._tally.add(parted=1)
            return
        with self._tally.lock:
            whose = [word for word, other in self._alone.items() if other == text]
            self._tally.wrong.append(f"{self._word} got {f'the answer of {whose[0]}' if whose else repr(text)}")


def memory(url: str) -> float:
    """Bytes that the engine's process holds."""
    found = parse(httpx2.get(f"{url}/metrics", timeout=30).text)
    return next((one.value for one in found if one.name == "localspec:engine_memory_bytes"), 0.0)


def soak(url: str, clients: int, seconds: float, rounds: bool) -> bool:
    """Whether all went well. ``rounds``: texts may part."""
    words = [f"code{chr(ord('a') + at % 26) * (3 + at // 26)}" for at in range(clients)]
    alone = {word: expected(url, word) for word in words}
    tally, end = Tally(), time.monotonic() + seconds
    threads = [
        threading.Thread(target=Client(url, word, alone, random.Random(at), tally, rounds).run, kwargs={"until": end})
        for at, word in enumerate(words)
    ]
    for thread in threads:
        thread.start()
    time.sleep(seconds / 4)
    before = memory(url)
    for thread in threads:
        thread.join()
    after = memory(url)
    print(
        f"{clients} clients, {seconds:g} s: {tally.same} answers as alone, {tally.parted} parted,"
        f" {len(tally.wrong)} wrong, {tally.left} left, {tally.turned_away} turned away;"
        f" the engine's memory {before / 1e6:.1f} → {after / 1e6:.1f} MB"
    )
    for line in tally.wrong[:10]:
        print(line)
    return not tally.wrong and tally.same > 0 and after <= before * _GROWTH


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.soak", description="Many clients of one server.")
    parser.add_argument("--url", help="a running server; default: one without weights")
    parser.add_argument("--clients", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--rounds", action="store_true", help="the weights round: texts may part, words may not stray")
    parser.add_argument("--seconds", type=float, default=180.0, help="for each count of clients")
    given = parser.parse_args(arguments)
    with ExitStack() as stack:
        url = given.url
        if url is None:
            from tests.server.factories import Options
            from tests.server.support import serving

            url = stack.enter_context(serving(Options(n_ctx=8000), queue=24)).url
        return 1 - min(soak(url, clients, given.seconds, given.rounds) for clients in given.clients)


if __name__ == "__main__":
    sys.exit(main())
