"""A server of SmolLM2: what clients get is what the model says, guessed or not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from localspec.backends.options import ModelOptions
from localspec.cli.serve import read_vocabulary
from localspec.engine_options import EngineOptions
from localspec.host import HostedEngine
from localspec.server.desk import EnginePort
from localspec.server.run import Plan
from localspec.server.setting import Setting
from localspec.types import GenerationRequest, SamplingParams, SpecParams
from tests.server.support import Site, served_by

ASKED = [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]
BASE = GenerationRequest(
    prompt="",
    special=True,
    max_tokens=48,
    sampling=SamplingParams(temperature=0.0, seed=1),
    spec=SpecParams(depth=6, nodes=8),
)
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@pytest.fixture(scope="module")
def site(smol_f32: Path) -> Iterator[Site]:
    options = EngineOptions(
        ModelOptions(smol_f32, threads=1), n_ctx=2048, sequences=2, tree_nodes=8, measure=False, spec_types=("suffix",)
    )

    def load(wanted: Callable[[], bool]) -> tuple[EnginePort, Setting]:
        vocab = read_vocabulary(smol_f32)
        engine = HostedEngine(options, on_progress=lambda _stage, _share: wanted())
        return engine, Setting(BASE, engine.info, vocab, alias="smol", places=8)

    with served_by(Plan(port=0, sequences=2, queue=6), load) as found:
        yield found


@pytest.fixture(scope="module")
def client(site: Site) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{site.url}/v1", api_key="none", max_retries=0) as found:
        yield found


def test_chat_whole_and_streamed_guessed_and_not(client: Any) -> None:
    def ask(**more: Any) -> Any:
        return client.chat.completions.create(model="smol", messages=ASKED, **more)

    texts = {ask(extra_body={"speculative": mode}).choices[0].message.content for mode in ("off", "auto", "fixed")}
    (text,) = texts
    assert "Paris" in text
    assert "".join(chunk.choices[0].delta.content or "" for chunk in ask(stream=True)) == text


def test_log_probabilities_belong_to_their_tokens(client: Any) -> None:
    def told(mode: str) -> Any:
        answer = client.chat.completions.create(
            model="smol", messages=ASKED, logprobs=True, top_logprobs=2, extra_body={"speculative": mode}
        )
        text = "".join(one.token for one in answer.choices[0].logprobs.content)
        assert text == answer.choices[0].message.content
        return [one.logprob for one in answer.choices[0].logprobs.content]

    plain, guessed = told("off"), told("fixed")
    assert guessed == pytest.approx(plain, abs=1e-3)
    assert all(value <= 0 for value in plain)
    assert len(set(plain)) > 5


def test_json_by_a_schema(client: Any) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}, "people": {"type": "integer"}},
        "required": ["city", "people"],
    }
    answer = client.chat.completions.create(
        model="smol",
        messages=[{"role": "user", "content": "Describe Paris as JSON."}],
        max_tokens=100,
        response_format={"type": "json_schema", "json_schema": {"name": "city", "schema": schema, "strict": True}},
    )
    found = json.loads(answer.choices[0].message.content)
    assert found.keys() == {"city", "people"}
    assert isinstance(found["people"], int)


def test_a_function_that_has_to_be_called(client: Any) -> None:
    answer = client.chat.completions.create(
        model="smol",
        messages=[{"role": "user", "content": "What is the weather in Paris?"}],
        tools=[WEATHER],
        tool_choice="required",
        max_tokens=100,
    )
    (call,) = answer.choices[0].message.tool_calls
    assert answer.choices[0].finish_reason == "tool_calls"
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments).keys() == {"city"}


def test_the_second_turn_reads_only_what_is_new(site: Site) -> None:
    first = site.ask("/v1/chat/completions", messages=ASKED)
    said = first["choices"][0]["message"]["content"]
    more = [*ASKED, {"role": "assistant", "content": said}, {"role": "user", "content": "And of Italy?"}]
    second = site.ask("/v1/chat/completions", messages=more)
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] > first["usage"]["prompt_tokens"] - 2
    assert "Rome" in second["choices"][0]["message"]["content"]


def test_characters_of_several_tokens_come_whole(site: Site) -> None:
    text = "😀 안녕 👩‍👩‍👧‍👦 ありがとう 🎉"
    fields = {"prompt": "Hello", "grammar": f'root ::= "{text}"', "max_tokens": 100}
    for mode in ("off", "fixed"):
        events = site.stream("/v1/completions", speculative=mode, **fields)[:-1]
        pieces = [event["choices"][0]["text"] for event in events]
        assert "".join(pieces) == text
        assert len(pieces) > 3
        cut = site.ask("/v1/completions", speculative=mode, **{**fields, "max_tokens": 2})["choices"][0]
        assert text.startswith(cut["text"])


def test_words_and_the_template(site: Site) -> None:
    tokens = site.ask("/tokenize", content="Hello, 世界!")["tokens"]
    assert site.ask("/detokenize", tokens=tokens)["content"] == "Hello, 世界!"
    prompt = site.ask("/apply-template", messages=ASKED)["prompt"]
    assert prompt.endswith("<|im_end|>\n<|im_start|>assistant\n")
    text = site.ask("/completion", prompt=prompt)
    assert text["content"] == site.ask("/v1/chat/completions", messages=ASKED)["choices"][0]["message"]["content"]
    assert text["stop_type"] == "eos"
