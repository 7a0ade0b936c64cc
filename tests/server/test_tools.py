"""Functions that a model calls: forms that families write, what is forced, and what clients get."""

from __future__ import annotations

import json
from typing import Any

import pytest

from localspec.server.calls import Call, CallReader
from tests.server.factories import Options
from tests.server.support import HELLO, Site, serving

CHAT = "/v1/chat/completions"
NAMES = ("weather", "add")
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather at a place.",
        "parameters": {"type": "object", "properties": {"at": {"enum": ["Rome", "Oslo"]}}, "required": ["at"]},
    },
}
ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "parameters": {"type": "object", "properties": {"one": {"type": "boolean"}}, "required": ["one"]},
    },
}
ROME = Call("weather", '{"at": "Rome"}')
TRUE = Call("add", '{"one": true}')
BARE = '{"name": "weather", "arguments": {"at": "Rome"}}'


@pytest.mark.parametrize(
    ("said", "text", "calls"),
    [
        (f"<tool_call>\n{BARE}\n</tool_call>", "", [ROME]),
        (f"Let me see. <tool_call>{BARE}</tool_call>", "Let me see.", [ROME]),
        (f"<tool_call>{BARE}</tool_call>\n<tool_call>{BARE}</tool_call>", "", [ROME, ROME]),
        (f"<tool_call>{BARE}", "", [ROME]),  # cut off
        (BARE, "", [ROME]),
        (f" {BARE}; {BARE}", "", [ROME, ROME]),
        ('{"name": "weather", "parameters": {"at": "Rome"}}', "", [ROME]),
        ('{"type": "function", "function": ' + BARE + "}", "", [ROME]),
        (f"[TOOL_CALLS][{BARE}]", "", [ROME]),
        (f"[{BARE}, {BARE}]", "", [ROME, ROME]),
        ('weather{"at": "Rome"}', "", [ROME]),
        ('<function=weather>{"at": "Rome"}</function>', "", [ROME]),
        ("<tool_call>\n<function=weather>\n<parameter=at>\nRome\n</parameter>\n</function>\n</tool_call>", "", [ROME]),
        (
            '<tool_call>{"name": "add", "arguments": "{\\"one\\": true}"}</tool_call>',
            "",
            [Call("add", '{"one": true}')],
        ),
        # None of a call:
        ("The weather is fine.", "The weather is fine.", []),
        ("weather is fine", "weather is fine", []),
        ('{"name": "unknown", "arguments": {}}', '{"name": "unknown", "arguments": {}}', []),
        ("<tool_call>{broken</tool_call>", "<tool_call>{broken</tool_call>", []),
        ("[1, 2]", "[1, 2]", []),
        ("a < b <tool", "a < b <tool", []),
        ("", "", []),
    ],
)
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_calls_are_found_however_the_text_comes(said: str, text: str, calls: list[Call], size: int) -> None:
    reader = CallReader(NAMES)
    out = [reader.push(said[at : at + size]) for at in range(0, len(said), size)]
    rest, found = reader.finish()
    assert ("".join(out) + rest).strip() == text.strip()
    assert list(found) == calls


def test_plain_text_is_not_held_back() -> None:
    reader = CallReader(NAMES)
    assert [reader.push(piece) for piece in ("Well", ", it is ", "<", "b", ">")] == ["Well", ", it is ", "", "<b", ">"]


def test_a_model_that_calls() -> None:
    with serving(Options(script=("Wait", ". ", "<tool_call>", BARE, "</tool_call>"))) as site:
        answer = site.chat(tools=[WEATHER])
        (choice,) = answer["choices"]
        assert choice["finish_reason"] == "tool_calls"
        assert choice["message"]["content"].strip() == "Wait."
        (call,) = choice["message"]["tool_calls"]
        assert (call["type"], call["function"]) == ("function", {"name": "weather", "arguments": ROME.arguments})
        events = site.stream(CHAT, messages=HELLO, tools=[WEATHER])[:-1]
        calls = [one for event in events for one in event["choices"][0]["delta"].get("tool_calls", ())]
        assert [(one["index"], one["function"]["name"]) for one in calls] == [(0, "weather")]
        assert events[-1]["choices"][0]["finish_reason"] == "tool_calls"
        # Without tools, or with none allowed, it is text.
        for fields in ({}, {"tools": [WEATHER], "tool_choice": "none"}):
            (choice,) = site.chat(**fields)["choices"]
            assert choice["finish_reason"] == "stop"
            assert BARE in choice["message"]["content"]


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("required", {"weather", "add"}),
        ({"type": "function", "function": {"name": "add"}}, {"add"}),
        ({"type": "function", "name": "weather"}, {"weather"}),
    ],
)
def test_a_model_that_has_to_call(site: Site, choice: Any, names: set[str]) -> None:
    answer = site.chat(tools=[WEATHER, ADD], tool_choice=choice, max_tokens=200, temperature=1.0, seed=4)
    (found,) = answer["choices"]
    (call,) = found["message"]["tool_calls"]
    assert found["finish_reason"] == "tool_calls"
    assert found["message"]["content"] is None
    assert call["function"]["name"] in names
    arguments = json.loads(call["function"]["arguments"])
    assert arguments in ({"at": "Rome"}, {"at": "Oslo"}, {"one": True}, {"one": False})


def test_a_choice_of_a_function_that_is_not_there(site: Site) -> None:
    wish = {"type": "function", "function": {"name": "fly"}}
    assert site.fault(CHAT, {"messages": HELLO, "tools": [ADD], "tool_choice": wish})["param"] == "tool_choice"


CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"at": "Rome"}'}}
TALK: list[dict[str, Any]] = [
    {"role": "user", "content": "Rome?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
]


def test_a_template_without_tools_is_told_in_words(site: Site) -> None:
    prompt = site.ask("/apply-template", messages=TALK)["prompt"]
    assert '<tool_call>\n{"name": "weather", "arguments": {"at": "Rome"}}\n</tool_call>' in prompt
    assert "Result of call_1:\nsunny" in prompt
    assert site.chat(messages=TALK, tools=[WEATHER])["choices"]


def test_a_template_with_tools_gets_them_as_they_are() -> None:
    template = (
        "{% for tool in tools or [] %}[{{ tool.function.name }}]{% endfor %}"
        "{% for m in messages %}{{ m.role }}={{ m.content }}"
        "{% for c in m.tool_calls or [] %}({{ c.function.name }} {{ c.function.arguments.at }}){% endfor %}"
        "{% if m.tool_call_id %}<{{ m.tool_call_id }}>{% endif %};{% endfor %}"
    )
    with serving(Options(template=template)) as site:
        prompt = site.ask("/apply-template", messages=TALK)["prompt"]
        assert prompt == "user=Rome?;assistant=(weather Rome);tool=sunny<call_1>;"
        with_tools = site.chat(messages=TALK, tools=[WEATHER])["usage"]["prompt_tokens"]
        assert with_tools == len(prompt) + len("[weather]")
        # Names of control tokens in arguments and results are the text they are.
        call = {**CALL, "function": {"name": "weather", "arguments": '{"at": "<end>"}'}}
        talk = [TALK[0], {**TALK[1], "tool_calls": [call]}, {**TALK[2], "content": "<end>"}]
        prompt = site.ask("/apply-template", messages=talk)["prompt"]
        assert prompt.count("<end>") == 2
        assert site.chat(messages=talk)["usage"]["prompt_tokens"] == len(prompt)
