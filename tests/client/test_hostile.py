"""Servers that send what no protocol has: never a fault of ours, and never half a character."""

from __future__ import annotations

import json
from typing import Any

import pytest

from localspec.client.course import Course
from localspec.client.engine import RemoteEngine
from localspec.client.sse import DONE, events, lines
from localspec.errors import NetworkError
from localspec.report import finite, speculation_record, timings_record
from localspec.types import Finished
from tests.client.server import Script, echoes, serving
from tests.client.support import USUAL, failure, text

#: In place of anything.
ODD: tuple[Any, ...] = (None, True, -1, 1e400, "x", "\ud800", [], {}, [[]], [None], {"x": None}, 10**30)
PLACES = (
    *("choices", "choices.0", "choices.0.delta", "choices.0.delta.content", "choices.0.finish_reason"),
    *("choices.0.logprobs", "choices.0.logprobs.content", "choices.0.logprobs.content.0", "choices.0.text"),
    *("choices.0.logprobs.tokens", "choices.0.logprobs.token_logprobs", "choices.0.logprobs.top_logprobs"),
    *("choices.0.logprobs.content.0.bytes", "choices.0.logprobs.content.0.top_logprobs"),
    *("usage", "usage.completion_tokens", "usage.prompt_tokens_details", "timings", "timings.predicted_n"),
    *("timings.predicted_ms", "timings.draft_n", "speculation", "speculation.steps", "speculation.by_drafter"),
    *("speculation.accepted_per_position", "speculation.speedup", "speculation.saved_ms"),
)
GOOD: dict[str, Any] = {
    "choices": [
        {
            "delta": {"content": "a"},
            "text": "",
            "finish_reason": "stop",
            "logprobs": {
                "content": [{"token": "a", "bytes": [97], "logprob": -1.0, "top_logprobs": []}],
                "tokens": ["a"],
                "token_logprobs": [-1.0],
                "top_logprobs": [{"a": -1.0}],
            },
        }
    ],
    "usage": {"completion_tokens": 1, "prompt_tokens": 2, "prompt_tokens_details": {}},
    "timings": {"predicted_n": 1, "predicted_ms": 1.0, "draft_n": 1},
    "speculation": {"steps": 1, "by_drafter": {}, "accepted_per_position": [1], "speedup": 2.0, "saved_ms": 1.0},
}


def with_odd(place: str, value: Any) -> dict[str, Any]:
    """The good object with something else at one place."""
    made: dict[str, Any] = json.loads(json.dumps(GOOD))
    *path, last = (int(part) if part.isdecimal() else part for part in place.split("."))
    inner: Any = made
    for part in path:
        inner = inner[part]
    inner[last] = value
    return made


@pytest.mark.parametrize("place", PLACES)
def test_anything_may_stand_anywhere(place: str) -> None:
    for value in ODD:
        course = Course(1, None, named=False, began=0.0)
        tokens = course.take(1.0, with_odd(place, value))
        finished = course.finished()
        assert isinstance(finished, Finished)
        json.dumps(finite(timings_record(finished.timings, finished.stats)), allow_nan=False).encode()
        json.dumps(finite(speculation_record(finished.stats)), allow_nan=False)
        if tokens is not None:
            tokens.text.encode()


@pytest.mark.parametrize("line", ["data: {", "data: 3", 'data: "x"', "data: []", "data: " + "[" * 100_000, "data:"])
def test_lines_that_are_no_objects(line: str) -> None:
    with pytest.raises(NetworkError, match="the server sends"):
        list(events([(0.0, line)]))


def test_what_is_no_data_is_passed_over() -> None:
    sent = b': ping\r\n\r\nevent: x\ndata: {"a": 1}\r\n\nid: 3\ndata: ' + DONE.encode()
    pieces = [(float(at), sent[at : at + 1]) for at in range(len(sent))]
    assert [event for _, event in events(lines(pieces))] == [{"a": 1}, {}]


@pytest.mark.parametrize("models", ["<html>", {}, [], {"data": 3}, {"data": [{}]}, {"data": []}, None])
def test_servers_of_something_else(models: object) -> None:
    with serving(Script([echoes], pages={"/v1/models": models}, lists=False)) as url, pytest.raises(NetworkError):
        RemoteEngine(url)


def test_a_server_without_a_list_of_models() -> None:
    with serving(Script([echoes], lists=False)) as url, RemoteEngine(url, model="named") as engine:
        assert text(list(engine.submit(USUAL))) == "<hello>"


def test_halves_of_characters_in_answers_and_errors() -> None:
    def half(reply: Any, body: Any) -> None:
        reply.events('{"choices": [{"delta": {"content": "a\\ud83d"}, "finish_reason": "stop"}]}')
        reply.end()

    def error(reply: Any, body: Any) -> None:
        reply.raw(b'{"error": {"message": "no \\ud83d"}}', 400)

    with serving(Script([half, error], model={"id": "m\ud83d"})) as url, RemoteEngine(url) as engine:
        assert text(list(engine.submit(USUAL))) == "a\ufffd"
        assert "no \ufffd" in failure(list(engine.submit(USUAL))).message
        assert engine.info.target == "m\ufffd"
