from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import httpx2
import pytest

from localspec.errors import LocalspecError, NetworkError, UsageError
from localspec.tools.top.reading import Reading, counters_of, model_of, slots_of
from localspec.tools.top.source import MockSource, ServerSource
from localspec.tools.top.view import View, lines, record
from localspec.types import SpecStats

#: As llama.cpp's server writes it.
METRICS = """\
# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed, excluding cached tokens
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 531
llamacpp:prompt_tokens_cached_total 64
llamacpp:prompt_seconds_total 0.875
llamacpp:tokens_predicted_total 1200
llamacpp:tokens_predicted_seconds_total 1.92e+01
llamacpp:n_decode_total 400
llamacpp:spec_decode_num_draft_tokens_total 900
llamacpp:spec_decode_num_accepted_tokens_total 600
llamacpp:spec_decode_num_drafts_total 300
llamacpp:requests_processing 1
llamacpp:requests_deferred 2
# HELP llamacpp:spec_decode_num_accepted_tokens_per_pos_total Accepted tokens per draft position
# TYPE llamacpp:spec_decode_num_accepted_tokens_per_pos_total counter
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 270
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 210
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="2"} 120
"""
SLOTS: list[dict[str, object]] = [
    {"id": 0, "n_ctx": 4096, "speculative": True, "is_processing": False},
    {
        "id": 1,
        "n_ctx": 4096,
        "speculative": True,
        "is_processing": True,
        "id_task": 7,
        "n_prompt_tokens": 150,
        "params": {"n_predict": -1},
        "next_token": [{"has_next_token": True, "n_remain": -1, "n_decoded": 38}],
    },
]
PROPS = {"total_slots": 2, "model_alias": "small.gguf", "model_path": "/models/small.gguf"}
PAGES: Mapping[str, object] = {"/metrics": METRICS, "/slots": SLOTS, "/props": PROPS}


def server(pages: Mapping[str, object] = PAGES, *, key: str | None = None) -> ServerSource:
    """A source whose server has these pages; a number is a status."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        page = pages.get(request.url.path, 404)
        if isinstance(page, int):
            return httpx2.Response(page)
        if request.headers.get("Authorization") != (f"Bearer {key}" if key else None):
            return httpx2.Response(401)
        return httpx2.Response(200, text=page if isinstance(page, str) else json.dumps(page))

    return ServerSource("http://127.0.0.1:8080/v1/", api_key=key, transport=httpx2.MockTransport(answer))


def test_a_look_at_a_server() -> None:
    with server(key="secret") as source:
        now = source.look()
    assert lines(View(now), source.url, 80) == [
        "small.gguf · http://127.0.0.1:8080",
        "slots     1 of 2 busy · 2 waiting",
        "speed     answers 62.5 tok/s · prompts 607 tok/s",
        "guesses   accepted 67 % (600/900) · length 3.0",
        "by depth  1: 90 % · 2: 70 % · 3: 40 %",
        "tokens    1200 tok · 531 of prompts · 64 reused",
        "slot 0    idle",
        "slot 1    38 tok · context 150/4096",
    ]


def test_speeds_are_those_between_two_looks() -> None:
    first = server().look()
    assert first.slots is not None
    assert first.counters is not None
    grown = (first.slots[0], replace(first.slots[1], decoded=98))
    view = View(replace(first, at=first.at + 2, slots=grown), first)
    assert view.tokens_per_second == pytest.approx(30)
    another = (first.slots[0], replace(first.slots[1], decoded=10, task=8))
    assert View(replace(first, at=first.at + 2, slots=another), first).tokens_per_second == pytest.approx(5)
    stats = SpecStats(drafted_steps=310, draft_n=930, accepted=610, accepted_at=(275, 214, 120, 1))
    view = View(replace(first, at=first.at + 2, counters=replace(first.counters, stats=stats)), first)
    assert view.recent is not None
    assert (view.recent.stats.draft_n, view.recent.stats.accepted, view.recent.stats.mean_length) == (30, 10, 2)
    assert view.recent.stats.accepted_at == (5, 4, 0, 1)
    assert "  lately  accepted 33 % (10/30) · length 2.0" in lines(view, "u", 80)


def test_a_server_that_was_started_anew_is_counted_from_its_start() -> None:
    old = counters_of(METRICS)
    fresh = counters_of("tokens_predicted_total 5\nprompt_tokens_total 9\n")
    assert fresh.since(old) == fresh
    assert old.since(fresh).predicted_n == 1195


def test_a_server_tells_what_it_was_started_to_tell() -> None:
    now = server({**PAGES, "/metrics": 501}).look()
    assert now.counters is None
    assert lines(View(now), "u", 80)[-1] == "note      more is known of a server that is started with --metrics"
    now = server({**PAGES, "/slots": 501, "/props": 404}).look()
    assert (now.slots, now.model) == (None, "")
    assert lines(View(now), "u", 80)[0] == "u"
    with pytest.raises(NetworkError, match="tells nothing"):
        server({}).look()


@pytest.mark.parametrize(
    ("pages", "message"),
    [
        ({**PAGES, "/slots": 401}, "wants a key"),
        ({**PAGES, "/slots": 503}, "not ready"),
        ({**PAGES, "/metrics": 500}, "status 500"),
        ({**PAGES, "/metrics": "<html>"}, "not understood"),
        ({**PAGES, "/metrics": "tokens_predicted_total many"}, "not understood"),
        ({**PAGES, "/slots": "<html>"}, "not understood"),
        ({**PAGES, "/slots": [1]}, "not understood"),
        ({**PAGES, "/slots": [{"id": 0}]}, "not understood"),
        ({**PAGES, "/slots": [{**SLOTS[1], "next_token": [3]}]}, "not understood"),
    ],
)
def test_what_is_no_such_server_is_refused(pages: Mapping[str, object], message: str) -> None:
    with pytest.raises(NetworkError, match=message) as caught:
        server(pages).look()
    assert caught.value.hint


def test_a_server_that_is_not_there() -> None:
    def refuse(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused")

    with pytest.raises(LocalspecError, match="cannot be reached"):
        ServerSource("http://127.0.0.1:1", transport=httpx2.MockTransport(refuse)).look()
    for url in ("nonsense", "ftp://x", "http://", "http://[::1"):
        with pytest.raises(UsageError):
            ServerSource(url)


def test_older_servers_and_those_that_have_not_answered_yet() -> None:
    older = {**SLOTS[1], "next_token": {"n_decoded": 3}}
    assert [slot.decoded for slot in slots_of([older, SLOTS[0]])] == [3, 0]
    assert counters_of("localspec:tokens_predicted_total 4 1700000000000\n").predicted_n == 4
    assert lines(View(Reading(0.0, "", None, counters_of("tokens_predicted_total 0\n"))), "u", 80) == [
        "u",
        "guesses   nothing was drafted",
        "tokens    0 tok · 0 of prompts · 0 reused",
    ]
    assert model_of({"model_path": "C:\\models\\a.gguf"}) == "a.gguf"


def test_names_steer_no_terminal() -> None:
    now = server({**PAGES, "/props": {"model_alias": "bad\x1b[2J"}}).look()
    assert all(char.isprintable() for line in lines(View(now), "u", 80) for char in line)


def test_a_record_is_json() -> None:
    first, second = (server().look() for _ in range(2))
    data = json.loads(json.dumps(record(View(second, first), "u"), allow_nan=False))
    assert (data["model"], data["counters"]["acceptance"], data["lately"]["draft_n"]) == ("small.gguf", 600 / 900, 0)
    assert data["slots"][1]["decoded"] == 38
    bare = record(View(Reading(0.0, "", None, None)), "u")
    assert (bare["slots"], bare["counters"], bare["lately"], bare["tokens_per_second"]) == (None, None, None, None)


def test_the_mock_looks_like_a_server() -> None:
    source = MockSource()
    view = View(source.look())
    for _ in range(12):
        view = View(source.look(), view.now)
    shown = lines(view, source.url, 80)
    assert view.tokens_per_second == pytest.approx(48)
    assert [line.split()[0] for line in shown] == [
        "mock.gguf",
        "slots",
        "speed",
        "guesses",
        "lately",
        "by",
        "tokens",
        "slot",
        "slot",
    ]
    assert all(len(line) <= 80 for line in shown)
