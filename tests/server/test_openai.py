"""The official client against a server of ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.server.factories import Options
from tests.server.support import HELLO, Site, serving
from tests.server.test_tools import BARE, WEATHER


@pytest.fixture(scope="module")
def client(site: Site) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{site.url}/v1", api_key="none", max_retries=0) as found:
        yield found


def test_chat(client: Any) -> None:
    answer = client.chat.completions.create(
        model="any", messages=HELLO, max_tokens=20, logprobs=True, top_logprobs=2, extra_body={"speculative": "fixed"}
    )
    assert answer.choices[0].message.content
    assert answer.usage.completion_tokens == 20
    assert len(answer.choices[0].logprobs.content) == 20
    assert answer.model_extra["timings"]["predicted_n"] == 20


def test_stream(client: Any) -> None:
    whole = client.chat.completions.create(model="any", messages=HELLO, max_tokens=20).choices[0].message.content
    options = {"include_usage": True}
    chunks = list(
        client.chat.completions.create(model="any", messages=HELLO, max_tokens=20, stream=True, stream_options=options)
    )
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == whole
    assert chunks[-1].usage.completion_tokens == 20


def test_completions_and_models(client: Any) -> None:
    assert client.completions.create(model="any", prompt="hello", max_tokens=5).choices[0].text
    assert [model.id for model in client.models.list()] == ["fake.gguf"]


def test_responses(client: Any) -> None:
    answer = client.responses.create(model="any", input="hello", max_output_tokens=20)
    assert answer.output_text
    assert answer.status == "incomplete"
    with serving(Options(script=("Hello", " there"))) as site:
        other = openai.OpenAI(base_url=f"{site.url}/v1", api_key="none")
        with other, other.responses.stream(model="any", input="hello") as stream:
            text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
            assert stream.get_final_response().output_text == text == "Hello there"


def test_tools() -> None:
    with serving(Options(script=(BARE,))) as site:
        client: Any = openai.OpenAI(base_url=f"{site.url}/v1", api_key="none")
        answer = client.chat.completions.create(model="any", messages=HELLO, tools=[WEATHER])
        (call,) = answer.choices[0].message.tool_calls
        assert (call.function.name, call.function.arguments) == ("weather", '{"at": "Rome"}')
        client.close()


def test_errors(client: Any) -> None:
    with pytest.raises(openai.BadRequestError, match="temperature") as caught:
        client.chat.completions.create(model="any", messages=HELLO, temperature=-1e12)
    assert caught.value.param == "temperature"
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="any", input="x")
    with (
        serving(keys=("k",)) as site,
        openai.OpenAI(base_url=f"{site.url}/v1", api_key="wrong") as other,
        pytest.raises(openai.AuthenticationError),
    ):
        other.models.list()
