"""Chat completions: whole and streamed, with usage, numbers, log-probabilities and choices."""

from __future__ import annotations

import json
from typing import Any

from tests.server.factories import Options
from tests.server.support import HELLO, Site, serving

CHAT = "/v1/chat/completions"


def test_an_answer_as_openai_has_it(site: Site) -> None:
    answer = site.chat()
    assert answer["object"] == "chat.completion"
    assert answer["model"] == "fake.gguf"
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "length"
    assert choice["message"]["role"] == "assistant"
    assert choice["message"]["content"]
    assert answer["usage"]["completion_tokens"] == 12
    assert answer["usage"]["prompt_tokens"] == len("u:hello\n")
    assert answer["usage"]["total_tokens"] == 12 + len("u:hello\n")
    assert answer["timings"]["predicted_n"] == 12
    assert answer["speculation"]["steps"] > 0


def test_guesses_change_numbers_and_no_text(site: Site) -> None:
    said = [site.chat(max_tokens=80, speculative=mode) for mode in ("off", "fixed", {"n_max": 2, "mode": "fixed"})]
    texts = {one["choices"][0]["message"]["content"] for one in said}
    assert len(texts) == 1
    plain, guessed, _ = said
    assert "draft_n" not in plain["timings"]
    assert guessed["timings"]["draft_n"] >= guessed["timings"]["draft_n_accepted"] > 0
    assert guessed["speculation"]["alpha"] is not None


def test_a_stream_is_the_same_answer(site: Site) -> None:
    whole = site.chat(max_tokens=40)
    *events, counts, last = site.stream(CHAT, messages=HELLO, max_tokens=40, stream_options={"include_usage": True})
    assert last == "[DONE]"
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    text = "".join(event["choices"][0]["delta"].get("content", "") for event in events)
    assert text == whole["choices"][0]["message"]["content"]
    assert [event["choices"][0]["finish_reason"] for event in events] == [None] * (len(events) - 1) + ["length"]
    assert events[-1]["timings"]["predicted_n"] == 40
    assert counts["choices"] == []
    assert counts["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
    assert {event["id"] for event in (*events, counts)} == {events[0]["id"]}


def test_usage_comes_only_when_asked_for(site: Site) -> None:
    events = site.stream(CHAT, messages=HELLO)
    assert not any("usage" in event for event in events[:-1])


def test_timings_of_every_chunk(site: Site) -> None:
    events = site.stream(CHAT, messages=HELLO, max_tokens=40, timings_per_token=True, speculative="fixed")[:-1]
    counts = [event["timings"]["predicted_n"] for event in events if event["choices"][0]["delta"].get("content")]
    assert counts == sorted(counts)
    assert counts[-1] == 40


def test_progress_of_the_prompt(site: Site) -> None:
    long = [{"role": "user", "content": "abcdefgh" * 40}]
    events = site.stream(CHAT, messages=long, max_tokens=2, return_progress=True)[:-1]
    told = [event["prompt_progress"] for event in events if "prompt_progress" in event]
    assert len(told) > 1
    assert {one["total"] for one in told} == {len("u:\n") + 320}
    assert [one["processed"] for one in told] == sorted(one["processed"] for one in told)


def test_log_probabilities_are_the_targets(site: Site) -> None:
    def content(**more: Any) -> Any:
        return site.chat(logprobs=True, top_logprobs=3, max_tokens=30, **more)["choices"][0]["logprobs"]["content"]

    guessed, plain = content(speculative="fixed"), content(speculative="off")
    assert guessed == plain
    assert len(guessed) == 30
    for one in guessed:
        assert len(one["top_logprobs"]) == 3
        assert one["logprob"] == one["top_logprobs"][0]["logprob"] <= 0  # greedy
        assert bytes(one["bytes"]).decode() == one["token"]
    streamed = site.stream(CHAT, messages=HELLO, max_tokens=30, logprobs=True, top_logprobs=3)[:-1]
    pieces = [one["choices"][0]["logprobs"] for one in streamed]
    assert [entry for one in pieces if one for entry in one["content"]] == plain


def test_choices_differ_by_seed_and_the_first_is_the_one_alone(site: Site) -> None:
    fields = {"temperature": 1.5, "seed": 9, "max_tokens": 20}
    alone = site.chat(**fields)
    answer = site.chat(n=3, **fields)
    texts = [choice["message"]["content"] for choice in answer["choices"]]
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert texts[0] == alone["choices"][0]["message"]["content"]
    assert len(set(texts)) == 3
    assert answer["usage"]["prompt_tokens"] == alone["usage"]["prompt_tokens"]
    assert answer["usage"]["completion_tokens"] == 60
    streamed = site.stream(CHAT, messages=HELLO, n=3, **fields)[:-1]
    joined = ["", "", ""]
    for event in streamed:
        (choice,) = event["choices"]
        joined[choice["index"]] += choice["delta"].get("content", "")
    assert joined == texts


def test_stop_and_bias(site: Site) -> None:
    text = site.chat(max_tokens=40)["choices"][0]["message"]["content"]
    stop = text[10:12]
    answer = site.chat(max_tokens=40, stop=[stop])
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["choices"][0]["message"]["content"] == text[: text.index(stop)]
    told = site.chat(max_tokens=40, stop=[stop], logprobs=True, speculative="fixed")["choices"][0]
    assert "".join(one["token"] for one in told["logprobs"]["content"]) == told["message"]["content"]
    letter = site.ask("/tokenize", content=text[0])["tokens"][0]
    for bias in ({str(letter): -100}, [[letter, False]], [[text[0], -1e9]]):
        assert text[0] not in site.chat(max_tokens=40, logit_bias=bias)["choices"][0]["message"]["content"]


def test_content_may_come_in_parts_and_roles_have_other_names(site: Site) -> None:
    parts = [{"type": "text", "text": "hello"}]
    one = site.chat(messages=[{"role": "developer", "content": "be kind"}, {"role": "user", "content": parts}])
    other = site.chat(messages=[{"role": "system", "content": "be kind"}, *HELLO])
    assert one["choices"] == other["choices"]


def test_a_prediction_is_guessed_from(site: Site) -> None:
    text = site.chat(max_tokens=40)["choices"][0]["message"]["content"]
    again = site.chat(max_tokens=40, prediction={"type": "content", "content": text})
    assert again["choices"][0]["message"]["content"] == text


def test_thinking_is_told_apart() -> None:
    template = "{% for message in messages %}{{ message.content }}\n{% endfor %}{# <think> </think> #}"
    script = ("<think>", "hm", " so", "</think>", "\n\n", "Yes", ".")
    with serving(Options(script=script, template=template)) as site:
        message = site.chat()["choices"][0]["message"]
        assert (message["reasoning_content"], message["content"]) == ("hm so", "Yes.")
        events = site.stream(CHAT, messages=HELLO)[:-1]
        deltas = [event["choices"][0]["delta"] for event in events]
        assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "hm so"
        assert "".join(delta.get("content", "") for delta in deltas) == "Yes."
        raw = site.chat(reasoning_format="none")["choices"][0]["message"]
        assert raw["content"] == "".join(script)


def test_json_by_a_schema(site: Site) -> None:
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    wish = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}
    for fields in ({"response_format": wish}, {"json_schema": schema}):
        answer = site.chat(max_tokens=60, **fields)
        assert json.loads(answer["choices"][0]["message"]["content"]) in ({"ok": True}, {"ok": False})
        assert answer["choices"][0]["finish_reason"] == "stop"
    assert site.chat(max_tokens=60, grammar='root ::= "abc"')["choices"][0]["message"]["content"] == "abc"
