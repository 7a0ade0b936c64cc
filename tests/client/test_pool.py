"""Several servers as one engine: no request is lost, none is answered twice, whatever becomes of the servers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from localspec.client.engine import RemoteEngine
from localspec.client.pool import Patience, Pool
from localspec.errors import EngineDied, NetworkError
from localspec.types import Event, Failed, Message, Tokens
from tests.client.server import (
    Behaviour,
    Script,
    babbles,
    busy,
    dies,
    echoes,
    fails,
    regrets,
    says,
    serving,
    stalls,
    stutters,
)
from tests.client.support import USUAL, end, failure, text

#: Nobody waits long in a test, and nothing is given up.
QUICK = Patience(tries=3, pause=0.01, longest=0.05, most=60)


def pool(urls: Sequence[str], said: list[str], *, parallel: int = 2, patience: Patience = QUICK) -> Pool:
    opened = [(url, partial(RemoteEngine, url)) for url in urls]
    return Pool(opened, parallel=parallel, say=said.append, patience=patience)


def ask(made: Pool, n: int) -> list[list[Event]]:
    """The events of so many answers, all asked at once."""
    requests = [replace(USUAL, messages=(Message("user", str(at)),)) for at in range(n)]
    with ThreadPoolExecutor(n) as threads:
        return list(threads.map(lambda request: list(made.submit(request)), requests))


def scripts(*answers: Any) -> list[Script]:
    return [Script([*one] if isinstance(one, list) else [one]) for one in answers]


def run(found: Sequence[Script], n: int, **more: Any) -> tuple[list[list[Event]], list[str]]:
    said: list[str] = []
    with ExitStack() as stack:
        urls = [stack.enter_context(serving(script)) for script in found]
        return ask(stack.enter_context(pool(urls, said, **more)), n), said


def whole(answers: list[list[Event]]) -> None:
    """Each question has its own answer, once."""
    assert [text(events) for events in answers] == [f"<{at}>" for at in range(len(answers))]
    assert all(len([event for event in events if isinstance(event, Tokens)]) == 1 for events in answers)


def test_work_is_spread_and_no_server_gets_more_than_its_share() -> None:
    def slow(reply: Any, body: Any) -> None:
        reply.gone.wait(0.02)
        echoes(reply, body)

    found = scripts(slow, slow)
    answers, said = run(found, 12)
    whole(answers)
    assert not said
    assert [script.most_at_once for script in found] == [2, 2]
    assert sum(len(script.asked) for script in found) == 12


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param([busy("0"), busy("0", 429), echoes], id="busy"),
        pytest.param([dies, echoes], id="dies in the middle"),
        pytest.param([babbles, fails(500), echoes], id="garbage"),
    ],
)
@pytest.mark.parametrize("others", [0, 1])
def test_what_one_server_does_not_answer_is_asked_again(trouble: list[Any], others: int) -> None:
    """By itself or by another; a torn answer leaves nothing behind."""
    found = scripts(trouble, *([echoes] * others))
    answers, _ = run(found, 6)
    whole(answers)


def test_a_busy_server_gets_nothing_for_as_long_as_it_says() -> None:
    """An hour, and the other does all."""
    found = scripts(busy("3600"), echoes)
    answers, said = run(found, 10)
    whole(answers)
    assert (len(found[0].asked) <= 2, said) == (True, [])


def test_a_dead_server_is_left_out_with_one_line_and_comes_back() -> None:
    said: list[str] = []
    back = Script([echoes])
    with ExitStack() as stack:
        other = stack.enter_context(serving(Script([echoes])))
        with serving(Script([echoes])) as dead:
            pass
        made = stack.enter_context(pool([dead, other], said))
        whole(ask(made, 6))
        assert len(said) == 1
        assert dead in said[0]
        assert "left out" in said[0]
        stack.enter_context(serving(back, port=int(dead.rpartition(":")[2])))
        while not back.asked:
            whole(ask(made, 4))
        assert said[1:] == [f"{dead} answers again"]


def test_a_request_that_makes_no_sense_is_asked_once() -> None:
    found = scripts(fails(400, "too long"))
    ((events,), said) = run(found, 1)
    assert failure(events).kind == "UsageError"
    assert (len(found[0].asked), said) == (1, [])


@pytest.mark.parametrize(
    ("fault", "kind"), [(dies, "Lost"), (babbles, "Broken"), (stutters, "Broken"), (regrets, "Broken")]
)
def test_a_request_that_no_server_can_answer_fails_alone(fault: Behaviour, kind: str) -> None:
    def picky(reply: Any, body: Any) -> None:
        (fault if body["messages"][0]["content"] == "3" else echoes)(reply, body)

    found = scripts(picky, picky)
    answers, _ = run(found, 6)
    assert failure(answers.pop(3)).kind == kind
    assert [text(events) for events in answers] == ["<0>", "<1>", "<2>", "<4>", "<5>"]
    assert sum(body["messages"][0]["content"] == "3" for script in found for body in script.asked) == QUICK.tries


def test_servers_that_are_gone_for_good_are_given_up() -> None:
    said: list[str] = []
    with serving(Script([echoes])) as url:
        made = pool([url], said, patience=replace(QUICK, most=0.2))
    with made:
        (events,) = ask(made, 1)
        assert isinstance(events[-1], Failed)
        assert events[-1].kind == EngineDied.__name__
        assert not made.alive
        with pytest.raises(NetworkError, match="does not answer any more"):
            made.restart()


def test_no_server_at_all() -> None:
    with serving(Script([echoes])) as url:
        pass
    with pytest.raises(NetworkError, match="cannot be reached"):
        pool([url], [])


def test_a_wish_to_stop_is_heard_while_servers_are_slow_or_away() -> None:
    script = Script([stalls])
    with serving(script) as url, pool([url], [], parallel=1) as made:
        handles = [made.submit(USUAL) for _ in range(3)]  # one that runs, and two that wait
        with ThreadPoolExecutor(3) as threads:
            ends = [threads.submit(list, handle) for handle in handles]
            while not script.asked:
                time.sleep(0.01)
            for handle in handles:
                handle.cancel()
            for one in ends:
                one.result(20)


def test_guesses_come_with_the_answer() -> None:
    timings = {"predicted_n": 9, "predicted_ms": 5.0, "draft_n": 6, "draft_n_accepted": 5}
    ((events,), _) = run(scripts(says("a", timings=timings)), 1)
    (tokens,) = [event for event in events if isinstance(event, Tokens)]
    assert tokens.step is not None
    assert (tokens.step.draft_n, tokens.step.accepted, tokens.step.emitted) == (6, 5, 9)
    assert end(events).n == 9


def test_different_models_are_pointed_out() -> None:
    other = Script([echoes], model={"id": "another"})
    _, said = run([*scripts(echoes), other], 1)
    assert said == ["the servers have different models: their-model, another"]


def test_one_file_in_two_folders_is_one_model() -> None:
    files = [Script([echoes], model={"id": name}) for name in ("big.gguf", "/models/big.gguf")]
    _, said = run(files, 1)
    assert said == []
