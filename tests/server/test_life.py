"""Queue, departures, time, death and the end: what a server owes to those who are not at it any more."""

from __future__ import annotations

import json
import os
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import httpx2
import pytest

from localspec.errors import ModelLoadError, UsageError
from localspec.server.answering import Limits
from localspec.server.errors import ApiError
from localspec.server.run import Plan, Serving
from tests.server.factories import DEADLY, DEAF, STICKY, Options
from tests.server.support import HELLO, Site, serving, until

CHAT = "/v1/chat/completions"
LONG = {"messages": HELLO, "max_tokens": 3000, "speculative": "off"}
SLOW = Options(pass_s=0.01)


def raw(site: Site, body: dict[str, Any], path: str = CHAT) -> socket.socket:
    """A connection that has sent its request."""
    text = json.dumps(body).encode()
    host, port = site.url.removeprefix("http://").split(":")
    line = socket.create_connection((host, int(port)))
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
    )
    line.sendall(head.encode() + text)
    return line


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_ends_when_its_client_leaves(stream: bool) -> None:
    with serving(SLOW) as site:
        with raw(site, {**LONG, "stream": stream}) as line:
            if stream:
                assert b"200 OK" in line.recv(4096)
            until(lambda: site.serving.ledger.read().slots[0].decoded > 2)
        until(lambda: site.open == 0, 5)
        reading = site.serving.ledger.read()
        assert reading.ends == {"cancelled": 1}
        assert reading.slots[0].decoded < 1000
        until(lambda: site.serving.desk.taken == 0)


def test_so_does_one_that_waits_or_reads_its_prompt() -> None:
    with serving(Options(pass_s=0.02, sequences=1, n_ctx=9000)) as site:
        long = [{"role": "user", "content": "abc " * 2000}]
        with raw(site, LONG) as first:
            until(lambda: site.serving.ledger.read().running == 1)
            with raw(site, LONG):
                until(lambda: site.serving.ledger.read().waiting == 1)
            until(lambda: site.serving.ledger.read().waiting == 0)
            assert site.serving.ledger.read().running == 1
            first.close()
        with raw(site, {**LONG, "messages": long}):
            until(lambda: site.serving.ledger.read().slots[0].prompt_n > 8000)
        until(lambda: site.open == 0, 5)
        assert site.serving.ledger.read().ends == {"cancelled": 3}


def test_a_full_queue_says_when_to_come_again() -> None:
    with serving(Options(pass_s=0.01, sequences=1), queue=1) as site:
        with raw(site, LONG), raw(site, LONG):
            until(lambda: site.open == 2)
            got = site.post(CHAT, {"messages": HELLO})
            assert (got.status_code, got.json()["error"]["code"]) == (503, "queue_full")
            assert int(got.headers["retry-after"]) >= 1
            assert site.post(CHAT, {"messages": HELLO, "n": 3}).status_code == 400  # never any place for so many
        until(lambda: site.serving.desk.taken == 0)
        assert site.chat()["choices"]
        assert site.serving.ledger.read().refused == 1


def test_an_answer_has_so_much_time() -> None:
    with serving(SLOW, limits=Limits(answer_s=0.3)) as site:
        error = site.fault(CHAT, LONG, 504)
        assert error["type"] == "timeout_error"
        events = site.stream(CHAT, **LONG)
        assert events[-1]["error"]["type"] == "timeout_error"
        assert any(event["choices"][0]["delta"].get("content") for event in events[:-1])
        until(lambda: site.serving.desk.taken == 0)


def test_a_silent_stream_shows_that_it_lives() -> None:
    with serving(Options(pass_s=0.4), limits=Limits(ping_s=0.05)) as site:
        with site.client.stream("POST", CHAT, json={"messages": HELLO, "stream": True, "max_tokens": 2}) as got:
            lines = list(got.iter_lines())
        assert lines.count(": still at it") > 3
        assert lines[-2] == "data: [DONE]"


def test_a_body_that_never_ends() -> None:
    with serving(limits=Limits(body_s=0.2)) as site:
        host, port = site.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as line:
            line.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 99\r\n\r\n{{".encode())
            assert b" 408 " in line.recv(4096)


def test_an_engine_that_dies_is_an_error_and_started_again() -> None:
    with serving(Options(perils=True)) as site:
        pid = site.engine.pid
        error = site.fault(CHAT, {"messages": [{"role": "user", "content": DEADLY}]}, 503)
        assert error["code"] == "engine_died"
        assert "SIGKILL" in error["message"]
        until(lambda: site.client.get("/health").status_code == 200)
        assert site.engine.pid != pid
        assert site.chat()["choices"]
        assert "the engine died: it is started again" in site.said
        assert "localspec:engine_restarts_total 1" in site.client.get("/metrics").text


def test_one_that_dies_in_its_sleep_and_in_the_middle_of_a_stream() -> None:
    with serving(SLOW) as site:
        os.kill(site.engine.pid, signal.SIGKILL)
        until(lambda: "the engine died: it is started again" in site.said)
        until(lambda: site.client.get("/health").status_code == 200)
        with site.client.stream("POST", CHAT, json={**LONG, "stream": True}) as got:
            lines = got.iter_lines()
            next(line for line in lines if '"content":"' in line and '"content":""' not in line)
            os.kill(site.engine.pid, signal.SIGKILL)
            last = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")][-1]
        assert last["error"]["code"] == "engine_died"
        until(lambda: site.client.get("/health").status_code == 200)


def test_it_tells_that_it_loads() -> None:
    with serving(Options(load_s=1.0), wait=False) as site:
        got = site.client.get("/health")
        assert (got.status_code, got.json()["error"]["message"]) == (503, "Loading model")
        assert site.fault(CHAT, {"messages": HELLO}, 503)["code"] == "loading"
        assert "localspec:ready 0" in site.client.get("/metrics").text
        until(lambda: site.client.get("/health").status_code == 200)


def test_a_model_that_does_not_load_ends_it() -> None:
    with pytest.raises(ModelLoadError, match="cut short"), serving(Options(fails=True)):
        pass


def test_it_lets_answers_finish_and_takes_no_more() -> None:
    with serving(SLOW) as site, ThreadPoolExecutor(1) as pool:
        fields = {"messages": HELLO, "max_tokens": 100, "speculative": "off"}
        answer = pool.submit(httpx2.post, f"{site.url}{CHAT}", json=fields, timeout=20)
        until(lambda: site.serving.ledger.read().slots[0].decoded > 2)
        site.serving.stop()
        got = answer.result(20)
        assert (got.status_code, got.json()["usage"]["completion_tokens"]) == (200, 100)
        with pytest.raises(httpx2.ConnectError):
            httpx2.get(f"{site.url}/health")


def test_but_not_for_ever() -> None:
    with serving(SLOW, drain_s=1) as site, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(httpx2.post, f"{site.url}{CHAT}", json=LONG, timeout=20)
        until(lambda: site.serving.ledger.read().running == 1)
        site.serving.stop()
        got = answer.result(20)
        assert (got.status_code, got.json()["error"]["code"]) == (503, "draining")


def test_a_request_that_never_comes_does_not_hold_up_the_end() -> None:
    with serving(SLOW, drain_s=1) as site:
        host, port = site.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=20) as line:
            line.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 99\r\n\r\n{{".encode())
            assert site.chat()["choices"]  # so it has come
            site.serving.stop()
            with suppress(ConnectionResetError):
                assert line.recv(4096) == b""


def test_a_pass_that_is_stuck_holds_up_its_answer_alone() -> None:
    with serving(Options(perils=True), limits=Limits(answer_s=0.5)) as site:
        stuck = {"messages": [{"role": "user", "content": STICKY}]}
        assert site.fault(CHAT, stuck, 504)["code"] == "timeout"
        assert site.chat()["choices"]


def test_one_that_nothing_stops_is_ended() -> None:
    with serving(Options(perils=True), limits=Limits(answer_s=0.3), patience_s=0.2) as site:
        pid = site.engine.pid
        deaf = {"messages": [{"role": "user", "content": DEAF}]}
        assert site.fault(CHAT, deaf, 504)["code"] == "timeout"
        until(lambda: "the engine hangs: it is ended" in site.said)
        until(lambda: _has_another(site, pid))
        until(lambda: site.client.get("/health").status_code == 200)
        assert site.serving.desk.taken == 0


def test_addresses_that_cannot_be_had() -> None:
    in_use = pytest.raises(UsageError, match="cannot be listened on: Address already in use")
    with socket.create_server(("127.0.0.1", 0)) as taken, in_use:
        Serving(Plan(port=taken.getsockname()[1]), lambda wanted: pytest.fail("loaded"), print)
    with pytest.raises(UsageError, match="is no address"):
        Serving(Plan(host="no such name"), lambda wanted: pytest.fail("loaded"), print)


def _has_another(site: Site, pid: int) -> bool:
    """Whether another engine runs than that of ``pid``."""
    with suppress(ApiError):  # none does
        return site.engine.pid != pid
    return False
