"""Requests that make no sense: the status, and an object that names the field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.server.support import HELLO, Site, serving

CHAT = "/v1/chat/completions"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": [3]}, "messages"),
        ({"messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages[0].tool_calls[0].function"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": -1}, "top_p"),
        ({"top_k": 1.5}, "top_k"),
        ({"top_k": 10**12}, "top_k"),
        ({"max_tokens": -5}, "max_tokens"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"n": 0}, "n"),
        ({"n": 100}, "n"),
        ({"seed": 2**70}, "seed"),
        ({"stop": [""]}, "stop"),
        ({"stop": 7}, "stop"),
        ({"stream": "yes"}, "stream"),
        ({"model": 5}, "model"),
        ({"logprobs": 3}, "logprobs"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logit_bias": {"99999999": 1}}, "logit_bias"),
        ({"logit_bias": [1, 2]}, "logit_bias"),
        ({"logit_bias": {"5": "much"}}, "logit_bias"),
        ({"samplers": ["magic"]}, "samplers"),
        ({"mirostat": 1}, "mirostat"),
        ({"grammar": "root ::= ("}, "grammar"),
        ({"json_schema": {"type": "nothing"}}, "json_schema"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format.json_schema.schema"),
        ({"add_generation_prompt": False}, "add_generation_prompt"),
        ({"continue_final_message": True}, "continue_final_message"),
        ({"reasoning_format": "bogus"}, "reasoning_format"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_object"}, "grammar": 'root ::= "a"'}, "grammar"),
        ({"speculative": "sometimes"}, "speculative.mode"),
        ({"speculative": 3}, "speculative"),
        ({"speculative": {"n_max": -1}}, "speculative.n_max"),
        ({"speculative": {"tree_nodes": 10_000}}, "speculative.tree_nodes"),
        ({"speculative.n_max": "four"}, "speculative.n_max"),
        ({"speculative": {"n_min": 9, "n_max": 2}}, "speculative.n_min"),
        ({"tools": [{"type": "browser"}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"echo": True}, "echo"),
        ({"best_of": 4}, "best_of"),
        ({"chat_template_kwargs": {"messages": 1}}, "chat_template_kwargs"),
        ({"id_slot": -2}, "id_slot"),
        ({"id_slot": "first"}, "id_slot"),
    ],
)
def test_a_field_that_makes_no_sense_is_named(site: Site, fields: dict[str, Any], param: str) -> None:
    error = site.fault(CHAT, {"messages": HELLO, **fields})
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"
    assert site.open == 0


def test_what_the_engine_refuses_is_the_requests_fault(site: Site) -> None:
    long = [{"role": "user", "content": "a" * 5000}]
    assert "the context holds 4096" in site.fault(CHAT, {"messages": long})["message"]
    assert "the context holds 4096" in site.fault(CHAT, {"messages": long, "stream": True})["message"]
    assert "not loaded" in site.fault(CHAT, {"messages": HELLO, "speculative": {"types": ["magic"]}})["message"]


def test_a_prompt_that_does_not_fit_is_told_with_its_numbers(site: Site) -> None:
    error = site.fault(CHAT, {"messages": [{"role": "user", "content": "a" * 5000}]})
    assert (error["code"], error["param"]) == ("context_length_exceeded", "messages")
    assert (error["n_prompt_tokens"], error["n_ctx"]) == (5003, 4096)
    assert site.fault("/completion", {"prompt": "a" * 5000})["param"] == "prompt"
    empty = site.fault("/completion", {"prompt": ""})
    assert (empty["param"], empty["code"]) == ("prompt", None)
    assert "-p" not in empty["message"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"seed": 2**70}, "seed is not in -1 … 2^64 - 1, where -1 asks for any"),
        ({"stop": [""]}, "stop has an empty text, or more than 256 texts"),
        ({"messages": None}, "messages is missing"),
        ({"logit_bias": {"99999999": 1}}, "POST /tokenize"),
    ],
)
def test_what_is_wrong_is_said_in_words(site: Site, fields: dict[str, Any], words: str) -> None:
    assert words in site.fault(CHAT, {"messages": HELLO, **fields})["message"]


def test_unknown_fields_and_nulls_are_nobodys_business(site: Site) -> None:
    nulls = dict.fromkeys(("temperature", "stop", "seed", "tools", "logit_bias", "n", "stream_options"))
    assert site.chat(user="me", metadata={}, store=True, **nulls)["choices"] == site.chat()["choices"]


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b'"x"', b"\xff", b'{"messages": NaN}', b'{"prompt": "\\ud800"}', b"[" * 100_000],
)
@pytest.mark.parametrize("path", [CHAT, "/tokenize", "/v1/responses"])
def test_bodies_that_are_no_objects(site: Site, path: str, body: bytes) -> None:
    assert site.fault(path, body)["message"].startswith("the body is")


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/completions", {}),
        ("/v1/completions", {"prompt": []}),
        ("/v1/completions", {"prompt": [10**6]}),
        ("/v1/completions", {"prompt": [[]]}),
        ("/completion", {"prompt": {"prompt_string": "x", "multimodal_data": ["y"]}}),
        ("/completion", {"prompt": "x", "response_fields": ["content"]}),
        ("/v1/responses", {"input": "x", "include": ["message.output_text.logprobs"]}),
        ("/v1/responses", {"input": "x", "text": {"format": {"type": "json_schema", "name": "x"}}}),
        ("/tokenize", {}),
        ("/detokenize", {"tokens": [-1]}),
        ("/detokenize", {"tokens": "abc"}),
        ("/apply-template", {"messages": 1}),
        ("/v1/responses", {}),
        ("/v1/responses", {"input": [{"type": "image_generation_call"}]}),
        ("/v1/responses", {"input": "x", "previous_response_id": "resp_1"}),
        ("/v1/responses", {"input": "x", "store": "yes"}),
    ],
)
def test_other_endpoints_refuse_too(site: Site, path: str, fields: dict[str, Any]) -> None:
    assert site.fault(path, fields)["message"]


def test_no_such_place_and_no_such_method(site: Site) -> None:
    assert "there is no /v2" in site.fault("/v2", {}, 404)["message"]
    got = site.client.get(CHAT)
    assert (got.status_code, got.json()["error"]["type"]) == (405, "invalid_request_error")
    assert "POST" in got.headers["allow"]


def test_a_body_that_is_too_large() -> None:
    from localspec.server.answering import Limits

    with serving(limits=Limits(body_bytes=1000)) as site:
        big = json.dumps({"messages": HELLO, "user": "x" * 2000}).encode()
        assert site.fault(CHAT, big, 413)["code"] == "body_too_large"

        def pieces() -> Any:
            yield from (big[at : at + 100] for at in range(0, len(big), 100))

        got = site.client.post(CHAT, content=pieces())  # nobody says how long it is
        assert got.status_code == 413
        assert site.chat()["choices"]
