"""Looking at what a real llama.cpp server answered (0.5.0-dev, SmolLM2-135M, two slots of 512 tokens): while it loads,
before, while and after it answers 200 tokens; and the same with a draft model (its own target) over 100 tokens."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from localspec.client.prometheus import parse
from localspec.tools.top.board import Board
from localspec.tools.top.reading import Reading, Slot
from localspec.tools.top.source import Server
from localspec.tools.top.words import lines
from tests.cli.support import run
from tests.tools.llama_server import DONE_SLOT, FRESH_SLOT, PROPS, Pages, metrics, refusal, serving, slot

RECORDED: dict[str, dict[str, tuple[int, str]]] = {
    moment: {path: (status, body) for path, (status, body) in pages.items()}
    for moment, pages in json.loads(Path(__file__).with_name("recorded.json").read_text()).items()
}


def reading(moment: str, at: float = 0.0) -> Reading:
    with serving(Pages(RECORDED[moment])) as url, closing(Server(url, clock=lambda: at)) as source:
        return source.read()


def body(moment: str, path: str) -> Any:
    return json.loads(RECORDED[moment][path][1])


# The pages that other tests make up


def test_made_up_pages_have_nothing_that_a_server_has_not() -> None:
    _, answering = body("plain_answering", "/slots")
    fresh, done = body("plain_done", "/slots")
    assert set(slot()) == set(answering)
    assert set(DONE_SLOT) == set(done)
    assert set(FRESH_SLOT) == set(fresh)
    assert set(PROPS) <= set(body("plain_done", "/props"))
    real = {one.name for one in parse(RECORDED["drafting_done"]["/metrics"][1])}
    assert {one.name for one in parse(metrics())} <= real
    assert {*json.loads(refusal(503, "Loading model")[1])["error"]} == {*body("loading", "/health")["error"]}


# Readings and rates


def test_a_server_that_loads() -> None:
    assert not reading("loading").ready


@pytest.mark.parametrize(
    ("moment", "slots"),
    [
        ("plain_idle", (Slot(0, None, 512, False, 0, 0, False), Slot(1, None, 512, False, 0, 0, False))),
        ("plain_answering", (Slot(0, None, 512, False, 0, 0, False), Slot(1, 2, 512, True, 65, 26, False))),
        ("plain_done", (Slot(0, None, 512, False, 0, 0, False), Slot(1, 2, 512, False, 238, 0, False))),
        ("drafting_reading", (Slot(0, None, 512, False, 0, 0, True), Slot(1, 2, 512, True, 44, 1, True))),
        ("drafting_done", (Slot(0, None, 512, False, 0, 0, True), Slot(1, 2, 512, False, 143, 0, True))),
    ],
)
def test_slots(moment: str, slots: tuple[Slot, ...]) -> None:
    found = reading(moment)
    assert (found.ready, found.missing, found.build) == (True, (), "b1-0c1e570")
    assert found.slots == slots


def test_every_token_of_an_answer_is_counted_once() -> None:
    board = Board("x")
    assert board.take(reading("plain_idle", 0)).speed is None
    assert board.take(reading("plain_answering", 2)).speed == 13  # 26 tokens
    view = board.take(reading("plain_done", 1_000_000))  # so long after that the rate is that of this stretch alone
    assert view.speed == pytest.approx(174 / 999_998)
    assert (view.tokens, view.busy, view.waiting) == (200, 0, 0)
    assert view.mean == pytest.approx(200 / 12.1534)
    assert view.guesses is None


def test_guesses_are_those_that_the_server_counted() -> None:
    board = Board("x")
    assert board.take(reading("drafting_reading", 0)).guesses is None
    guesses = board.take(reading("drafting_done", 7)).guesses
    assert guesses is not None
    assert (guesses.drafted, guesses.accepted, guesses.acceptance, guesses.lately) == (75, 73, 73 / 75, 73 / 75)
    assert guesses.mean_length == 1 + 73 / 25
    assert guesses.by_depth == (1, 1, 23 / 25)


def test_a_model_without_a_name_is_called_by_its_file() -> None:
    told = lines(Board("x").take(reading("plain_done")), 80)
    assert "model    SmolLM2-135M-Instruct.Q4_1.gguf · b1-0c1e570" in told


# The command


def test_once_and_json() -> None:
    with serving(Pages(RECORDED["drafting_done"])) as url:
        text = run("top", "-u", url, "--once", "--interval", "0.1")
        told = run("top", "-u", url, "--once", "--interval", "0.1", "--json")
    assert (text.returncode, text.stderr, told.returncode, told.stderr) == (0, b"", 0, b"")
    assert text.stdout.decode().splitlines()[1:] == [
        "model    smollm2 · b1-0c1e570",
        "speed    now 0 tok/s · mean 13.4 tok/s",
        "requests 0 running · 0 waiting · 100 tok so far",
        "guesses  accepted 97 % (73/75) · length 3.9",
        "  depth 1  ██████████ 100 %",
        "  depth 2  ██████████ 100 %",
        "  depth 3  █████████░ 92 %",
        "slot     does     answer   context",
        "0        idle     0        0/512",
        "1        idle     0        143/512",
    ]
    record = json.loads(told.stdout)
    assert record.pop("url") == url
    assert record.pop("tokens_per_second_mean") == pytest.approx(13.44, abs=0.01)
    assert record == {
        "state": "ready",
        "model": "smollm2",
        "build": "b1-0c1e570",
        "tokens_per_second": 0.0,
        "tokens_per_second_peak": 0.0,
        "prompt_tokens_per_second": 0.0,
        "tokens_predicted": 100,
        "prompt_tokens_cached": 0,
        "requests_processing": 0,
        "requests_deferred": 0,
        "draft_n": 75,
        "draft_n_accepted": 73,
        "acceptance": 73 / 75,
        "acceptance_lately": None,
        "mean_accepted_length": 3.92,
        "accepted_per_position": [1.0, 1.0, 0.92],
        "slots": [
            {
                "id": number,
                "id_task": task,
                "is_processing": False,
                "n_ctx": 512,
                "n_prompt_tokens": tokens,
                "n_decoded": 0,
                "speculative": True,
            }
            for number, task, tokens in ((0, None, 0), (1, 2, 143))
        ],
        "missing": [],
    }
