"""`localspec serve` as the server: what comes over the line is what the engine behind it gives."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from localspec.client.engine import RemoteEngine
from localspec.client.pool import Pool
from localspec.types import GenerationRequest, Message, SamplingParams, SpecParams, Tokens
from tests.client.support import end, text
from tests.server.factories import Options
from tests.server.support import Site, serving, until

ASKED = GenerationRequest(
    messages=(Message("user", "hello"),),
    max_tokens=24,
    sampling=SamplingParams(seed=3),
    spec=SpecParams(depth=16),
)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with serving() as found:
        yield found


@pytest.fixture(scope="module")
def engine(site: Site) -> Iterator[RemoteEngine]:
    with RemoteEngine(site.url) as found:
        yield found


def test_it_says_what_it_is(site: Site, engine: RemoteEngine) -> None:
    info, theirs = engine.info, site.engine.info
    assert (info.n_ctx, info.n_ctx_train, info.n_vocab) == (theirs.n_ctx, theirs.n_ctx_train, theirs.n_vocab)
    assert (info.chat_template, info.drafters, info.server) == (theirs.chat_template, theirs.drafters, site.url)
    assert info.warnings == ()


@pytest.mark.parametrize(
    "spec", [SpecParams(depth=16), SpecParams(mode="fixed", depth=4), SpecParams(mode="off", depth=0)]
)
@pytest.mark.parametrize("changes", [{}, {"temperature": 0.0}, {"top_k": 3, "min_tokens": 30, "dry_multiplier": 0.5}])
def test_the_same_text_with_the_same_seed(
    site: Site, engine: RemoteEngine, changes: dict[str, Any], spec: SpecParams
) -> None:
    asked = replace(ASKED, sampling=replace(ASKED.sampling, **changes), spec=spec)
    here, there = list(site.engine.submit(asked)), list(engine.submit(asked))
    assert text(there) == text(here)
    assert end(there).reason == end(here).reason
    assert end(there).n == end(here).n
    assert end(there).timings.prompt_n == end(here).timings.prompt_n


def test_its_statistics_of_guesses(site: Site, engine: RemoteEngine) -> None:
    asked = replace(ASKED, sampling=SamplingParams(temperature=0, seed=1), spec=SpecParams(mode="fixed", depth=4))
    here, there = end(list(site.engine.submit(asked))).stats, end(list(engine.submit(asked))).stats
    assert here.draft_n > 0
    for name in ("steps", "drafted_steps", "draft_n", "tested", "accepted", "accepted_at", "lengths", "by_source"):
        assert getattr(there, name) == getattr(here, name), name


def test_its_count_of_tokens(site: Site, engine: RemoteEngine) -> None:
    assert engine.encode(ASKED) == site.engine.encode(ASKED)
    plain = GenerationRequest(prompt="ab ab")
    assert engine.encode(plain) == site.engine.encode(plain)


def test_log_probabilities(site: Site, engine: RemoteEngine) -> None:
    asked = replace(ASKED, logprobs=2)
    here, there = (
        [one for event in list(made.submit(asked)) if isinstance(event, Tokens) for one in event.tokens]
        for made in (site.engine, engine)
    )
    assert [(one.piece, round(one.logprob or 0, 4)) for one in there] == [
        (one.piece, round(one.logprob or 0, 4)) for one in here
    ]
    assert [len(one.top) for one in there] == [2] * len(here)


def test_whoever_stops_frees_the_place() -> None:
    """A place of the server is taken as long as its answer runs."""
    with serving(Options(pass_s=0.02, sequences=1)) as site, RemoteEngine(site.url) as engine:
        handle = engine.submit(replace(ASKED, max_tokens=2000))
        events = iter(handle)
        while not isinstance(next(events), Tokens):
            pass
        assert site.open == 1
        handle.cancel()
        assert end(list(handle)).reason == "cancelled"
        until(lambda: site.open == 0)


def test_a_full_queue_is_waited_for() -> None:
    """One at a time and one in the queue: 503 for the others, until it is their turn."""
    said: list[str] = []
    requests = [replace(ASKED, messages=(Message("user", "a" * at),)) for at in range(1, 6)]
    with serving(Options(pass_s=0.005, sequences=1), queue=1) as site, RemoteEngine(site.url) as alone:
        opened = [(site.url, partial(RemoteEngine, site.url))]
        with Pool(opened, parallel=5, say=said.append) as pool, ThreadPoolExecutor(5) as threads:
            texts = list(threads.map(lambda request: text(list(pool.submit(request))), requests))
        assert site.serving.ledger.read().refused > 0
        assert texts == [text(list(alone.submit(request))) for request in requests]


def test_a_server_whose_engine_dies_in_the_middle() -> None:
    """Its stream ends with an error; the next answer is made by the engine that was started again."""
    with serving(Options(pass_s=0.01)) as site, RemoteEngine(site.url) as engine:
        opened = [(site.url, partial(RemoteEngine, site.url))]
        with Pool(opened, parallel=2, say=lambda line: None) as pool:
            handle = pool.submit(replace(ASKED, max_tokens=200))
            running = iter(engine.submit(replace(ASKED, max_tokens=200)))
            while not isinstance(next(running), Tokens):
                pass
            site.engine._process.kill()
            assert not isinstance(list(running)[-1], Tokens)
            assert text(list(handle))
