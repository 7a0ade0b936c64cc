"""An engine behind a URL: what it is asked, the events that come of it, and all that may go wrong."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from localspec.client.engine import RemoteEngine
from localspec.errors import ExitCode, NetworkError, UsageError
from localspec.text.thinking import ThinkingSplitter
from localspec.types import GenerationRequest, Message, Started, Tokens
from tests.client.server import (
    Script,
    babbles,
    busy,
    delta,
    dies,
    fails,
    regrets,
    says,
    serving,
    silent,
    stalls,
    stop,
    stutters,
)
from tests.client.support import USUAL, end, failure, text


def llama(*answers: Any, **more: Any) -> Script:
    """A server such as llama.cpp's, whose tokens are letters."""
    settings = {"default_generation_settings": {"n_ctx": 512}}
    pages = {
        "/props": {**settings, "chat_template": "{{ messages }}", "build_info": "b1"},
        "/apply-template": lambda body: {"prompt": "".join(f"[{one['content']}]" for one in body["messages"])},
        "/tokenize": lambda body: {"tokens": [ord(sign) for sign in body["content"]]},
    }
    return Script(list(answers) or [says("ok")], owner="llamacpp", pages={**pages, **more})


def test_an_answer_as_events_with_what_the_server_counts() -> None:
    script = llama(says("Hel", "lo"))
    with serving(script) as url, RemoteEngine(f"{url}/v1/", api_key="secret") as engine:
        info = engine.info
        assert (info.target, info.server, info.n_ctx, info.backend) == ("their-model", url, 512, "b1")
        assert (info.has_template, info.chat_template, info.warnings) == (True, "{{ messages }}", ())
        events = list(engine.submit(USUAL))
    assert isinstance(events[0], Started)
    assert (events[0].seed, text(events)) == (5, "Hello")
    finished = end(events)
    assert (finished.reason, finished.n, finished.ids) == ("stop", 2, ())
    assert (finished.timings.prompt_n, finished.timings.cache_n) == (7, 3)
    assert finished.timings.ttft_s > 0
    assert set(script.keys) == {"Bearer secret"}
    (asked,) = script.asked
    assert asked["messages"] == [{"role": "user", "content": "hello"}]
    assert (asked["model"], asked["seed"], asked["max_tokens"], asked["stream"]) == ("their-model", 5, 12, True)


def test_numbers_of_llama_cpp() -> None:
    timings = {
        "cache_n": 3,
        "prompt_n": 4,
        "prompt_ms": 250.0,
        "predicted_n": 9,
        "predicted_ms": 500.0,
        "predicted_per_second": 16.0,
        "draft_n": 6,
        "draft_n_accepted": 5,
    }
    with serving(llama(says("a", timings=timings))) as url, RemoteEngine(url) as engine:
        finished = end(list(engine.submit(USUAL)))
    clock = finished.timings
    assert (clock.prompt_n, clock.cache_n, clock.prompt_s, clock.predicted_n, clock.predicted_s) == (7, 3, 0.25, 9, 0.5)
    assert clock.tokens_per_second == pytest.approx(16.0)
    assert (finished.stats.draft_n, finished.stats.accepted, finished.stats.alpha) == (6, 5, None)


def test_thinking_is_told_from_the_answer_whatever_the_template() -> None:
    """As the chat does it, by the tags that its template names."""
    for template, thought in (("", "why?"), ("<think>", "why?"), ("[THINK]", ""), ("<think>", "")):
        script = llama(says(" yes", thinking=thought), **{"/props": {"chat_template": template}})
        with serving(script) as url, RemoteEngine(url) as engine:
            splitter = ThinkingSplitter()
            pieces = [*splitter.push(text(list(engine.submit(USUAL)))), *splitter.finish()]
        said = {kind: "".join(piece.text for piece in pieces if piece.kind == kind) for kind in ("thinking", "answer")}
        assert said == {"thinking": thought, "answer": "yes" if thought or template else " yes"}


def test_a_prompt_is_gone_on_with_as_it_is() -> None:
    script = llama(says("<think>not", " thinking"))
    asked = replace(USUAL, messages=None, prompt="Once", max_tokens=-1)
    with serving(script) as url, RemoteEngine(url) as engine:
        assert text(list(engine.submit(asked))) == "<think>not thinking"
        list(engine.submit(replace(asked, prompt=None, tokens=(1, 2))))
    assert script.paths == ["/v1/completions"] * 2
    assert [one["prompt"] for one in script.asked] == ["Once", [1, 2]]
    assert "max_tokens" not in script.asked[0]


def test_log_probabilities_in_both_forms() -> None:
    mine = {"token": "a", "bytes": [97], "id": 3, "logprob": -0.5, "top_logprobs": [{"token": "é", "logprob": -2}]}
    one = {**delta(content="a")["choices"][0], "logprobs": {"content": [mine]}}
    other = {"text": "b", "logprobs": {"tokens": ["b"], "token_logprobs": [-1.5], "top_logprobs": [{"c": -3.0}]}}

    def answer(reply: Any, body: Any) -> None:
        reply.events({"choices": [one]}, {"choices": [other]}, stop(), "[DONE]")
        reply.end()

    script = llama(answer)
    with serving(script) as url, RemoteEngine(url) as engine:
        events = list(engine.submit(replace(USUAL, logprobs=2)))
    tokens = [info for event in events if isinstance(event, Tokens) for info in event.tokens]
    assert [(info.piece, info.logprob) for info in tokens] == [(b"a", -0.5), (b"b", -1.5)]
    assert [[(top.piece, top.logprob) for top in info.top] for info in tokens] == [[("é".encode(), -2)], [(b"c", -3)]]
    assert (script.asked[0]["logprobs"], script.asked[0]["top_logprobs"]) == (True, 2)


def test_prompts_are_counted_by_the_server() -> None:
    with serving(llama()) as url, RemoteEngine(url) as engine:
        assert engine.encode(USUAL) == [ord(sign) for sign in "[hello]"]
        assert engine.encode(GenerationRequest(prompt="ab")) == [97, 98]


def test_what_is_not_told_is_estimated_and_said() -> None:
    with serving(Script([says("x")])) as url, RemoteEngine(url) as engine:
        assert len(engine.encode(GenerationRequest(prompt="abcdefgh!"))) == 3
        assert engine.info.n_ctx > 100_000
        assert len(engine.info.warnings) == 2
    with serving(Script([says("x")])) as url, RemoteEngine(url, n_ctx=900) as engine:
        assert engine.info.n_ctx == 900
        assert len(engine.info.warnings) == 1


@pytest.mark.parametrize(
    ("answer", "kind", "code", "words"),
    [
        (dies, "Lost", ExitCode.NETWORK, "broke off"),
        (babbles, "Broken", ExitCode.NETWORK, "in the middle"),
        (stutters, "Broken", ExitCode.NETWORK, "sends {no json"),
        (regrets, "Broken", ExitCode.NETWORK, "ends its answer: out of memory"),
        (busy("3"), "Busy", ExitCode.NETWORK, "the queue is full"),
        (fails(400, "too long"), "UsageError", ExitCode.USAGE, "too long"),
        (fails(500, "ouch"), "Broken", ExitCode.NETWORK, "ouch"),
        (fails(401), "NetworkError", ExitCode.NETWORK, "wants another key"),
    ],
)
def test_what_goes_wrong_is_the_last_event(answer: Any, kind: str, code: ExitCode, words: str) -> None:
    with serving(llama(answer)) as url, RemoteEngine(url) as engine:
        handle = engine.submit(USUAL)
        events = list(handle)
        failed = failure(events)
        assert (failed.kind, failed.exit_code) == (kind, code)
        assert words in failed.message
        assert failed.hint
        assert list(handle) == [failed], "the last event is kept"
        if answer is dies:
            assert text(events) == "half"


def test_a_busy_server_says_when() -> None:
    with serving(llama(busy("3"))) as url, RemoteEngine(url) as engine:
        assert failure(list(engine.submit(USUAL))).hint == "Try again in 3 s."


@pytest.mark.parametrize("answer", [stalls, silent])
def test_cancelling_does_not_wait_for_a_slow_server(answer: Any) -> None:
    """Its answer ends by the cancellation: the server says nothing more for as long as the test runs."""
    script = llama(answer)
    with serving(script) as url, RemoteEngine(url) as engine:
        handle = engine.submit(USUAL)
        if answer is stalls:
            seen = iter(handle)
            while not isinstance(next(seen), Tokens):
                pass
        handle.cancel()
        finished = end(list(handle))
        assert finished.reason == "cancelled"
        assert finished.n == (1 if answer is stalls else 0)


def test_whoever_leaves_the_loop_hangs_up() -> None:
    left = threading.Event()

    def endless(reply: Any, body: Any) -> None:
        try:
            while not reply.gone.wait(0.005):
                reply.events(delta(content="on "))
        except OSError:
            left.set()

    with serving(llama(endless)) as url, RemoteEngine(url) as engine:
        for event in engine.submit(USUAL):
            if isinstance(event, Tokens):
                break
        assert left.wait(20)


def test_the_model_to_ask_for() -> None:
    """A server with one model takes any name for it; of several it has to be one."""
    one, two = llama(), llama()
    with serving(one) as url, RemoteEngine(url, model="wanted") as engine:
        list(engine.submit(USUAL))
    assert one.asked[0]["model"] == "wanted"
    two.others = ("their-other-model",)
    with serving(two) as url:
        with RemoteEngine(url, model="their-other-model") as engine:
            assert engine.info.target == "their-other-model"
        with pytest.raises(UsageError, match="has no model wanted"):
            RemoteEngine(url, model="wanted")


def test_nobody_is_there() -> None:
    with serving(llama()) as url:
        pass
    with pytest.raises(NetworkError, match="cannot be reached"):
        RemoteEngine(url)
    for wrong in ("localhost", "http://localhost:1?a=b", "http://localhost:1/#v1"):
        with pytest.raises(UsageError, match="is not the URL"):
            RemoteEngine(wrong)


def test_user_and_password_go_to_the_server_and_nowhere_else() -> None:
    with serving(script := llama()) as url:
        named = url.replace("://", "://me:secret@")
        with RemoteEngine(named) as engine:
            assert text(engine.submit(USUAL))
            assert engine.info.server == url
    assert set(script.keys) == {"Basic bWU6c2VjcmV0"}
    with pytest.raises(NetworkError, match="cannot be reached") as caught:
        RemoteEngine(named)
    assert "secret" not in str(caught.value)


def test_single_steps_are_refused() -> None:
    with serving(llama()) as url, RemoteEngine(url) as engine, pytest.raises(UsageError, match="by itself"):
        engine.submit(replace(USUAL, steps=1))


def test_a_conversation_goes_along_as_it_is() -> None:
    script = llama()
    turns = (Message("system", "Be brief."), Message("user", "a"), Message("assistant", "b", (("name", "x"),)))
    with serving(script) as url, RemoteEngine(url) as engine:
        list(engine.submit(replace(USUAL, messages=turns, template_kwargs=(("enable_thinking", False),))))
    assert script.asked[0]["messages"][2] == {"role": "assistant", "content": "b", "name": "x"}
    assert script.asked[0]["chat_template_kwargs"] == {"enable_thinking": False}
