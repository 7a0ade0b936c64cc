"""OpenAI's newer form of a chat."""

from __future__ import annotations

import json

from tests.server.factories import Options
from tests.server.support import Site, serving
from tests.server.test_tools import BARE, WEATHER

PATH = "/v1/responses"
FLAT = {"type": "function", **WEATHER["function"]}  # type: ignore[dict-item]


def test_a_response(site: Site) -> None:
    answer = site.ask(PATH, input="hello", max_output_tokens=20)
    assert (answer["object"], answer["status"]) == ("response", "incomplete")
    assert answer["incomplete_details"] == {"reason": "max_output_tokens"}
    (item,) = answer["output"]
    assert item["status"] == "incomplete"
    chat = site.chat(max_tokens=20)
    assert item["content"][0]["text"] == chat["choices"][0]["message"]["content"]
    assert answer["usage"]["output_tokens"] == 20
    listed = [{"role": "user", "content": [{"type": "input_text", "text": "hello"}]}]
    assert site.ask(PATH, input=listed, max_output_tokens=20)["output"][0]["content"] == item["content"]


def test_a_stream_tells_when_what_begins_and_ends(site: Site) -> None:
    with site.client.stream("POST", PATH, json={"input": "hello", "stream": True, "max_output_tokens": 20}) as got:
        lines = [line for line in got.iter_lines() if line]
    names = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    assert names == [event["type"] for event in events]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    short = [name.removeprefix("response.") for name in dict.fromkeys(names)]
    assert short == [
        *("created", "in_progress", "output_item.added", "content_part.added", "output_text.delta"),
        *("output_text.done", "content_part.done", "output_item.done", "incomplete"),
    ]
    text = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
    assert text == events[-1]["response"]["output"][0]["content"][0]["text"]


def test_calls_and_their_results() -> None:
    with serving(Options(script=(BARE,))) as site:
        answer = site.ask(PATH, input="Rome?", tools=[FLAT])
        (call,) = answer["output"]
        assert (call["type"], call["name"], call["arguments"]) == ("function_call", "weather", '{"at": "Rome"}')
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
        again = site.ask(PATH, input=[{"role": "user", "content": "Rome?"}, call, result], tools=[FLAT])
        assert again["status"] == "completed"


def test_what_a_response_repeats(site: Site) -> None:
    asked = {"metadata": {"a": "b"}, "instructions": "be brief", "tools": [{**FLAT, "strict": True}]}
    answer = site.ask(PATH, input="hello", max_output_tokens=2, **asked)
    assert (answer["metadata"], answer["instructions"]) == (asked["metadata"], asked["instructions"])
    assert [one["strict"] for one in answer["tools"]] == [True]


def test_nothing_is_stored_and_the_response_says_so(site: Site) -> None:
    assert site.ask(PATH, input="hello", max_output_tokens=2, store=True)["store"] is False


def test_a_form_of_the_text(site: Site) -> None:
    form = {"type": "json_schema", "name": "x", "schema": {"enum": ["abc"]}}
    answer = site.ask(PATH, input="hello", text={"format": form}, instructions="be brief", max_output_tokens=40)
    assert answer["output"][0]["content"][0]["text"].strip() == '"abc"'
