"""Completions in OpenAI's older form and in llama.cpp's, words, and what the server says of itself."""

from __future__ import annotations

import pytest
from starlette.routing import Route

from tests.server.support import HELLO, Site, serving
from tests.server.test_tools import WEATHER

TEXT, NATIVE = "/v1/completions", "/completion"


def test_a_prompt_gone_on_with(site: Site) -> None:
    answer = site.ask(TEXT, prompt="hello", max_tokens=20)
    (choice,) = answer["choices"]
    assert answer["object"] == "text_completion"
    assert (choice["finish_reason"], choice["logprobs"]) == ("length", None)
    tokens = site.ask("/tokenize", content="hello")["tokens"]
    assert site.ask(TEXT, prompt=tokens, max_tokens=20)["choices"] == answer["choices"]
    events = site.stream(TEXT, prompt="hello", max_tokens=20)
    assert events[-1] == "[DONE]"
    assert "".join(event["choices"][0]["text"] for event in events[:-1]) == choice["text"]


def test_several_prompts_with_several_choices(site: Site) -> None:
    answer = site.ask(TEXT, prompt=["hello", "other"], n=2, max_tokens=8, temperature=1.2, seed=3)
    alone = [site.ask(TEXT, prompt=one, max_tokens=8, temperature=1.2, seed=3) for one in ("hello", "other")]
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert [answer["choices"][at]["text"] for at in (0, 2)] == [one["choices"][0]["text"] for one in alone]
    assert answer["usage"]["prompt_tokens"] == 10


def test_log_probabilities_in_the_older_form(site: Site) -> None:
    (choice,) = site.ask(TEXT, prompt="hello", max_tokens=6, logprobs=2)["choices"]
    told = choice["logprobs"]
    assert "".join(told["tokens"]) == choice["text"]
    assert told["text_offset"] == list(range(6))
    assert [max(one.values()) for one in told["top_logprobs"]] == told["token_logprobs"]


def test_llama_cpps_form(site: Site) -> None:
    answer = site.ask(NATIVE, prompt="hello", n_predict=6, n_probs=2, return_tokens=True)
    assert (answer["stop_type"], answer["tokens_predicted"], answer["tokens_evaluated"]) == ("limit", 6, 5)
    assert "".join(one["token"] for one in answer["completion_probabilities"]) == answer["content"]
    assert [one["id"] for one in answer["completion_probabilities"]] == answer["tokens"]
    events = site.stream(NATIVE, prompt="hello", n_predict=6)
    assert "".join(event["content"] for event in events) == answer["content"]
    assert [event["stop"] for event in events] == [False] * (len(events) - 1) + [True]
    several = site.ask(NATIVE, prompt=["hello", "hello"], n_predict=6)
    assert [one["content"] for one in several] == [answer["content"]] * 2
    mixed = site.ask(NATIVE, prompt=["hel", *site.ask("/tokenize", content="lo")["tokens"]], n_predict=6)
    assert (mixed["content"], mixed["prompt"]) == (answer["content"], "hello")


def test_the_slot_that_an_answer_asks_for(site: Site) -> None:
    """It is shown there, and says the same as in any other."""
    texts = {site.ask(NATIVE, prompt="hello", n_predict=6, id_slot=slot)["content"] for slot in (1, 1, -1, 99)}
    assert len(texts) == 1
    for path, fields in ((NATIVE, {"prompt": "hello"}), ("/v1/chat/completions", {"messages": HELLO})):
        before = [slot["id_task"] for slot in site.client.get("/slots").json()]
        site.ask(path, id_slot=1, max_tokens=3, **fields)
        after = [slot["id_task"] for slot in site.client.get("/slots").json()]
        assert [then != now for then, now in zip(before, after, strict=True)] == [at == 1 for at in range(len(before))]


def test_what_stopped_it(site: Site) -> None:
    text = site.ask(NATIVE, prompt="hello", n_predict=20)["content"]
    answer = site.ask(NATIVE, prompt="hello", n_predict=20, stop=[text[4:6]])
    assert (answer["stop_type"], answer["stopping_word"]) == ("word", text[4:6])


def test_no_tokens_at_all(site: Site) -> None:
    answer = site.ask(TEXT, prompt="hello", max_tokens=0)
    assert answer["choices"][0]["text"] == ""
    assert answer["choices"][0]["finish_reason"] == "length"
    assert (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]) == (5, 0)
    assert site.stream(TEXT, prompt="hello", max_tokens=0)[-2]["choices"][0]["finish_reason"] == "length"


def test_words_and_back(site: Site) -> None:
    tokens = site.ask("/tokenize", content="hello <end>")["tokens"]
    assert tokens[-1] == 0
    assert site.ask("/detokenize", tokens=tokens)["content"] == "hello <end>"
    assert site.ask("/tokenize", content="<end>", parse_special=False)["tokens"] != [0]
    pieces = site.ask("/tokenize", content="ab", with_pieces=True)["tokens"]
    assert [one["piece"] for one in pieces] == ["a", "b"]


def test_what_the_template_makes_of_a_chat(site: Site) -> None:
    turns = [{"role": "user", "content": "hi"}]
    assert site.ask("/apply-template", messages=turns)["prompt"] == "u:hi\n"
    closed = site.ask("/apply-template", messages=turns, add_generation_prompt=False)["prompt"]
    assert closed == "u:hi\n"  # this template opens nothing
    begun = [*turns, {"role": "assistant", "content": "yo"}]
    assert site.ask("/apply-template", messages=begun)["prompt"] == "u:hi\na:yo"
    assert site.ask("/apply-template", messages=begun, add_generation_prompt=False)["prompt"] == "u:hi\na:yo\n"
    assert site.fault("/apply-template", {"messages": begun, "continue_final_message": False})["param"]
    told = site.ask("/apply-template", messages=turns, tools=[WEATHER])["prompt"]
    assert "weather" in told
    usage = site.chat(messages=turns, tools=[WEATHER], max_tokens=1)["usage"]
    assert usage["prompt_tokens"] == len(site.ask("/tokenize", content=told)["tokens"])


def test_a_drawn_seed_is_told(site: Site) -> None:
    first = site.ask(NATIVE, prompt={"prompt_string": "hello"}, n_predict=9, temperature=2.0, seed=-1)
    seed = first["generation_settings"]["seed"]
    assert seed >= 0
    assert site.ask(NATIVE, prompt="hello", n_predict=9, temperature=2.0, seed=seed)["content"] == first["content"]
    chat = site.chat(temperature=2.0, seed=-1, n=2)
    for choice in chat["choices"]:
        again = site.chat(temperature=2.0, seed=choice["seed"])
        assert again["choices"][0]["message"] == choice["message"]
    assert chat["seed"] == chat["choices"][0]["seed"]


def test_one_model_by_its_name(site: Site) -> None:
    assert site.client.get("/v1/models/fake.gguf").json()["id"] == "fake.gguf"
    assert site.client.get("/v1/models/other").json()["error"]["code"] == "model_not_found"


def test_what_it_says_of_itself(site: Site) -> None:
    assert site.client.get("/health").json() == {"status": "ok"}
    assert [one["id"] for one in site.client.get("/v1/models").json()["data"]] == ["fake.gguf"]
    props = site.client.get("/props").json()
    assert (props["total_slots"], props["model_alias"]) == (4, "fake.gguf")
    assert props["default_generation_settings"]["n_ctx"] == 4096
    assert props["default_generation_settings"]["params"]["temperature"] == 0.0
    slots = site.client.get("/slots").json()
    assert [slot["id"] for slot in slots] == [0, 1, 2, 3]
    assert not any(slot["is_processing"] for slot in slots)


def test_the_description_names_every_endpoint(site: Site) -> None:
    told = site.client.get("/openapi.json").json()
    assert told["openapi"].startswith("3.1")
    paths = {route.path for route in site.serving.api.routes() if isinstance(route, Route)}
    twins = {
        "/v1/models/{model:path}",
        "/",
        "/openapi.json",
        "/v1/health",
        "/models",
        "/completions",
        "/chat/completions",
    }
    assert set(told["paths"]) == paths - twins


@pytest.mark.parametrize("path", ["/slots", "/metrics"])
def test_what_is_not_shown_is_not_there(path: str) -> None:
    with serving(slots=False, metrics=False, wait=False) as site:
        assert site.client.get(path).status_code == 404
        assert path not in site.client.get("/openapi.json").json()["paths"]
