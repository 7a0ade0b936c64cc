"""A line to a request: names, forms, and what is refused by name."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from localspec.options import COMMANDS, Values, settle
from localspec.options.parse import parse
from localspec.tools.batch.form import OpenAI, Plain
from localspec.tools.batch.parse import Parser, Refused, Task, line_seed
from localspec.tools.batch.source import Line
from localspec.types import GenerationRequest, Message

BATCH = COMMANDS["batch"]


def values(*arguments: str) -> Values:
    return settle(BATCH, parse(["in.jsonl", *arguments], BATCH), {}, files=False).values


def parser(*arguments: str, seed: int = 7, **more: Any) -> Parser:
    return Parser(BATCH.options, values(*arguments), seed=seed, **{"template": None, **more})


def asked(item: Any, *arguments: str, number: int = 3) -> GenerationRequest:
    task = parser(*arguments).task(Line(number, json.dumps(item).encode()))
    assert isinstance(task, Task), task
    return task.request


def refused(data: Any, *arguments: str) -> Refused:
    data = data if isinstance(data, bytes | None) else json.dumps(data).encode()
    task = parser(*arguments).task(Line(3, data))
    assert isinstance(task, Refused), task
    assert task.error.hint.endswith((".", "?", "}"))
    assert "\n" not in task.error.message
    return task


CHAT = {"custom_id": "c", "method": "POST", "url": "/v1/chat/completions"}
HELLO = [{"role": "user", "content": "Hello"}]


def test_a_prompt_goes_on_as_it_is() -> None:
    request = asked({"id": "a", "prompt": "Once"}, "-n", "9")
    assert (request.prompt, request.max_tokens, request.messages) == ("Once", 9, None)
    assert asked({"prompt": [1, 2, 3]}).tokens == (1, 2, 3)


def test_a_prompt_is_a_question_where_that_is_asked_for() -> None:
    assert asked({"prompt": "Hi"}, "-cnv").messages == (Message("user", "Hi"),)
    assert asked({"prompt": "Hi", "system": "Be brief."}).messages == (
        Message("system", "Be brief."),
        Message("user", "Hi"),
    )


def test_messages() -> None:
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
    assert asked({"messages": HELLO}).messages == (Message("user", "Hello"),)
    assert asked({"messages": [{"role": "user", "content": parts, "name": "me"}]}).messages == (
        Message("user", "Hel\nlo"),
    )
    own = [{"role": "system", "content": "Mine"}, *HELLO]
    assert asked({"messages": own, "system": "Theirs"}).messages == (
        Message("system", "Mine"),
        Message("user", "Hello"),
    )


@pytest.mark.parametrize(
    "names", [("temp", "n_predict"), ("temperature", "max_tokens"), ("temp", "max_completion_tokens")]
)
def test_settings_of_a_line_by_all_their_names(names: tuple[str, str]) -> None:
    request = asked({"prompt": "a", names[0]: 0.25, names[1]: 4}, "--temp", "0.9", "-n", "50")
    assert (request.sampling.temperature, request.max_tokens) == (0.25, 4)


def test_more_settings() -> None:
    line = {
        "prompt": "a",
        "top-k": 5,
        "stop": ["x", "y"],
        "logit_bias": {"5": -1.5, "6": "-inf"} | {"6": 2},
        "mirostat": 2,
        "samplers": ["top_k", "temperature"],
        "top_p": None,
    }
    request = asked(line, "--top-p", "0.5", "-r", "z")
    sampling = request.sampling
    assert (sampling.top_k, sampling.top_p, sampling.mirostat) == (5, 0.5, 2)
    assert (sampling.logit_bias, sampling.samplers) == (((5, -1.5), (6, 2.0)), ("top_k", "temperature"))
    assert request.stop == ("x", "y")
    assert asked({"prompt": "a", "stop": "one"}).stop == ("one",)
    assert asked({"prompt": "a", "logprobs": 3}).logprobs == 3
    assert asked({"messages": HELLO, "logprobs": True, "top_logprobs": 2}).logprobs == 2
    assert asked({"messages": HELLO, "logprobs": False}).logprobs is None


@pytest.mark.parametrize("key", ["speculative", "spec"])
def test_speculation_of_a_line(key: str) -> None:
    assert asked({"prompt": "a", key: "off"}).spec.mode == "off"
    spec = asked({"prompt": "a", key: {"mode": "fixed", "draft_n_max": 2, "tree_width": 3}}).spec
    assert (spec.mode, spec.depth, spec.width) == ("fixed", 2, 3)


def test_a_schema_of_a_line_stands_in_place_of_a_grammar() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    response = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    for line in ({"json_schema": schema}, {"response_format": response}):
        grammar = asked({"prompt": "a", **line}, "--grammar", 'root ::= "x"').sampling.grammar
        assert grammar is not None
        assert 'root ::= "x"' not in grammar
    assert asked({"prompt": "a", "response_format": {"type": "json_object"}}).sampling.grammar is not None
    assert asked({"prompt": "a", "response_format": {"type": "text"}}).sampling.grammar is None


def test_seeds_follow_from_the_base_and_the_line() -> None:
    assert asked({"prompt": "a"}, number=3).sampling.seed == line_seed(7, 3)
    assert asked({"prompt": "a", "seed": 5}).sampling.seed == 5
    assert asked({"prompt": "a", "seed": -1}, number=4).sampling.seed == line_seed(7, 4)
    assert len({line_seed(base, line) for base in range(30) for line in range(30)}) == 900
    assert (line_seed(7, 1), line_seed(7, 2)) == (line_seed(7, 1), line_seed(7, 2))


def test_a_line_of_openai() -> None:
    line = {**CHAT, "body": {"model": "gpt", "messages": HELLO, "max_tokens": 5, "n": 1, "stream": False, "user": "me"}}
    task = parser().task(Line(1, json.dumps(line).encode()))
    assert isinstance(task, Task)
    assert (task.form, task.request.max_tokens) == (OpenAI(1, "c", "/v1/chat/completions"), 5)
    line = {**CHAT, "url": "/v1/completions", "body": {"prompt": "Once"}}
    assert asked(line).prompt == "Once"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{nope", "is no JSON"),
        (b"[1, 2]", "no JSON object"),
        (b"7", "no JSON object"),
        (b'{"prompt": NaN}', "NaN is no number of JSON"),
        (b'{"prompt": "\xff"}', "not UTF-8 text"),
        (b"[" * 100_000, "is no JSON"),
        (None, "longer than"),
        ({}, "either prompt or messages"),
        ({"prompt": "a", "messages": HELLO}, "either prompt or messages"),
        ({"prompt": 7}, "prompt is no text"),
        ({"prompt": ["a", "b"]}, "not of token ids"),
        ({"prompt": "\ud800"}, "half a character"),
        ({"id": [1], "prompt": "a"}, "id is neither"),
        ({"messages": []}, "no list of messages"),
        ({"messages": "Hi"}, "no list of messages"),
        ({"messages": [{"role": "user"}]}, "content is no text"),
        ({"messages": [{"content": "a"}]}, "has no role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "a part that is no text"),
        (
            {"messages": [{"role": "assistant", "content": "a", "tool_calls": [1]}]},
            "'tool_calls', which is not offered",
        ),
        ({"prompt": "a", "temprature": 1}, "no setting 'temprature'"),
        ({"prompt": "a", "ctx_size": 1}, "no setting 'ctx_size'"),
        ({"prompt": "a", "grammar_file": "/etc/passwd"}, "no setting 'grammar_file'"),
        ({"prompt": "a", "temp": "hot"}, 'temp = "hot" in line 3 is not a number'),
        ({"prompt": "a", "top_p": 7}, "top_p = 7.0 in line 3 is out of range"),
        ({"prompt": "a", "n_predict": -7}, "out of range"),
        ({"prompt": "a", "spec": "often"}, "is not possible"),
        ({"prompt": "a", "spec": {"deep": 1}}, "spec has no setting 'deep'"),
        ({"prompt": "a", "tree_nodes": 99}, "more than the engine was loaded for"),
        ({"prompt": "a", "draft_n_min": 99}, "is more than"),
        ({"prompt": "a", "grammar": "root ="}, ""),
        ({"prompt": "a", "response_format": {"type": "xml"}}, "response_format cannot be read"),
        ({"prompt": "a", "logit_bias": {"5": "much"}}, "cannot be read"),
        ({"prompt": "a", "logprobs": 1000}, "no number from 0 to 20"),
        ({"prompt": "a", "stop": 5}, "is not a text"),
        ({**CHAT, "url": "/v1/embeddings", "body": {}}, "is not served"),
        ({**CHAT, "method": "GET", "body": {}}, "is not served"),
        ({**CHAT}, "has no body"),
        ({**CHAT, "body": {"prompt": "a"}}, "takes no prompt"),
        ({**CHAT, "body": {"messages": HELLO, "n": 2}}, "n is not offered"),
        ({**CHAT, "body": {"messages": HELLO, "stream": True}}, "stream is not offered"),
        ({**CHAT, "body": {"messages": HELLO, "tools": [{}]}}, "no setting 'tools'"),
        ({"custom_id": True, "body": {"messages": HELLO}}, "custom_id is neither"),
    ],
    ids=str,
)
def test_what_cannot_be_answered_is_refused_by_name(line: Any, message: str) -> None:
    assert message in refused(line).error.message


def test_a_refused_line_keeps_its_name_and_form() -> None:
    assert refused({"id": "a", "prompt": 7}).form == Plain(3, "a")
    assert refused({**CHAT, "body": {"prompt": "a"}}).form == OpenAI(3, "c", "/v1/chat/completions")
    assert refused({**CHAT, "url": "/v2"}).form == OpenAI(3, "c", None)


def test_what_no_form_can_be_seen_of_has_that_of_the_line_before() -> None:
    reader = parser()
    reader.task(Line(1, json.dumps({**CHAT, "body": {"messages": HELLO}}).encode()))
    task = reader.task(Line(2, b"?"))
    assert task.form == OpenAI(2)
    reader.task(Line(3, b'{"prompt": "a"}'))
    assert reader.task(Line(4, b"?")).form == Plain(4)


def test_a_line_changes_nothing_for_the_next() -> None:
    reader = parser("--temp", "0.5")
    first, second = (
        reader.task(Line(n, json.dumps(item).encode()))
        for n, item in enumerate([{"prompt": "a", "temp": 0.1, "stop": ["x"]}, {"prompt": "a"}])
    )
    assert isinstance(first, Task)
    assert isinstance(second, Task)
    same = replace(first.request.sampling, temperature=0.5, seed=second.request.sampling.seed)
    assert (second.request.sampling, second.request.stop) == (same, ())


def test_a_role_that_nobody_has() -> None:
    assert "'robot'" in refused({"messages": [{"role": "robot", "content": "Hi"}]}).error.message


def test_two_names_of_a_setting_that_differ() -> None:
    assert "temp and temperature" in refused({"prompt": "x", "temp": 0.1, "temperature": 0.9}).error.message
    assert asked({"prompt": "x", "temp": 0.5, "temperature": 0.5}).sampling.temperature == 0.5
