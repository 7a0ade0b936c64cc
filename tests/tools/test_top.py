"""Looking at a server: what it says, what follows from two looks, and what is told."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import closing
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.client.prometheus import Sample, parse
from localspec.errors import ExitCode, NetworkError, UsageError
from localspec.tools.top.board import Board, Rate
from localspec.tools.top.reading import Reading, Slot, metrics_of, model_of, slots_of
from localspec.tools.top.source import Mock, Server
from localspec.tools.top.words import bar, depths, lines
from tests.cli.support import error_line, run
from tests.tools.llama_server import FRESH_SLOT, OLD_SLOT, PROPS, Pages, metrics, refusal, serving, slot

# Prometheus

names = st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,8}", fullmatch=True)
keys = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,8}", fullmatch=True)
numbers = st.floats(allow_nan=False)
samples = st.builds(Sample, names, st.lists(st.tuples(keys, st.text()), max_size=3).map(tuple), numbers)


def written(sample: Sample, *, stamp: str = "", comma: str = "") -> str:
    def escaped(text: str) -> str:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    inside = ",".join(f'{key}="{escaped(value)}"' for key, value in sample.labels)
    value = {math.inf: "+Inf", -math.inf: "-Inf"}.get(sample.value, repr(sample.value))
    return f"{sample.name}{{{inside}{comma if inside else ''}}} {value}{stamp}"


@given(st.lists(samples, max_size=4), st.sampled_from(["", " 1700000000000", " -5"]), st.sampled_from(["", ","]))
def test_what_is_written_is_read(found: list[Sample], stamp: str, comma: str) -> None:
    text = "".join(f"# HELP x\n{written(one, stamp=stamp, comma=comma)}\n" for one in found)
    assert list(parse(text)) == found


@given(st.text())
def test_no_page_is_a_reason_to_fail(text: str) -> None:
    for one in parse(text):
        assert isinstance(one.value, float)


@pytest.mark.parametrize(
    "line", ["", "# TYPE a counter", "a", "a b", "9a 1", 'a{b="c} 1', "a{b} 1", 'a{b="c"x} 1', "a 1 2 3", 'a{b="c"']
)
def test_lines_that_are_no_samples(line: str) -> None:
    assert list(parse(line)) == []


def test_values_and_labels() -> None:
    (one,) = parse('a:b{x="1",y="q\\"\\\\\\n}"} 1.23e+06\r')
    assert one == Sample("a:b", (("x", "1"), ("y", 'q"\\\n}')), 1_230_000)
    assert (one.label("x"), one.label("z")) == ("1", None)


# Readings


def test_metrics_of_a_server() -> None:
    plain, accepted_at = metrics_of(parse(metrics()))
    assert plain["tokens_predicted_total"] == 1000
    assert "n_busy_slots_per_decode" not in plain  # nan
    assert accepted_at == (40, 10)


def test_depths_without_the_first_are_none() -> None:
    page = 'llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 3\nlocalspec:other 5\na{b="c"} 1\n'
    assert metrics_of(parse(page)) == ({"other": 5}, ())


def test_slots_of_servers_new_and_old() -> None:
    assert slots_of([slot(), OLD_SLOT, FRESH_SLOT, "x"]) == (
        Slot(0, 7, 4096, True, 50, 20, True),
        Slot(0, 3, 512, True, 0, 5, False),
        Slot(1, None, 4096, False, 0, 0, True),
    )
    assert slots_of({"error": {}}) is None
    assert slots_of([{"id": "x", "n_ctx": True, "next_token": []}]) == (Slot(0, None, 0, False, 0, 0, False),)


def test_the_model_is_called_by_its_alias() -> None:
    assert model_of(PROPS) == ("smol.gguf", "b6500-abcdef")
    assert model_of({"model_alias": "", "model_path": "/a/b.gguf"}) == ("/a/b.gguf", "")
    assert model_of(None) == ("", "")


# Rates


def test_a_rate_forgets_by_time() -> None:
    one, many = Rate(), Rate()
    one.add(10, 1)
    one.add(40, 2)
    many.add(10, 1)
    for _ in range(20):
        many.add(2, 0.1)
    assert one.value == pytest.approx(many.value)
    assert 10 < (one.value or 0) < 20
    one.add(5, 0)
    assert one.value == pytest.approx(many.value)
    assert one.peak == one.value


def reading(at: float, *slots: Slot, ready: bool = True, **told: float) -> Reading:
    return Reading(at, ready, slots=slots or None, metrics=told or None)


def busy(task: int, decoded: int) -> Slot:
    return Slot(0, task, 100, True, 10 + decoded, decoded, True)


def test_speed_is_what_came_into_the_slots() -> None:
    board = Board("x")
    assert board.take(reading(0, busy(1, 10))).speed is None
    assert board.take(reading(2, busy(1, 30))).speed == 10
    view = board.take(reading(3, busy(2, 5)))  # the next request
    assert view.speed is not None
    assert 5 < view.speed < 10
    assert view.peak == 10
    assert view.curve == (10, view.speed)


def test_an_answer_that_ends_between_two_looks_is_counted_once() -> None:
    board = Board("x")
    board.take(reading(0, busy(1, 90), tokens_predicted_total=500.0))
    ended = Slot(0, 1, 100, False, 130, 0, True)  # 120 tokens in all
    assert board.take(reading(2, ended, tokens_predicted_total=620.0)).speed == 15
    other = Board("x")
    other.take(reading(0, busy(1, 90), tokens_predicted_total=1_234_560.0))
    assert other.take(reading(2, busy(1, 100), tokens_predicted_total=1_234_560.0)).speed == 5


def test_depths_that_never_held_are_not_drawn() -> None:
    told = {"spec_decode_num_draft_tokens_total": 90.0, "spec_decode_num_accepted_tokens_total": 9.0}
    found = Reading(0, True, metrics={**told, "spec_decode_num_drafts_total": 10.0}, accepted_at=(6, 0, 3, 0, 0))
    drawn = depths(Board("x").take(found), plain=True)
    assert drawn == ["  depth 1  ######.... 60 %", "  depth 2  .......... 0 %", "  depth 3  ###....... 30 %"]
    many = Reading(0, True, metrics={**told, "spec_decode_num_drafts_total": 10.0}, accepted_at=(1,) * 48)
    assert len(depths(Board("x").take(many))) == 8


def test_counters_stand_in_for_slots_that_are_not_told() -> None:
    board = Board("x")
    board.take(reading(0, tokens_predicted_total=100.0, prompt_tokens_total=50.0))
    view = board.take(reading(4, tokens_predicted_total=140.0, prompt_tokens_total=450.0))
    assert (view.speed, view.reading, view.tokens, view.busy) == (10, 100, 140, None)


def test_a_server_that_was_started_anew_has_no_speed_below_nothing() -> None:
    board = Board("x")
    board.take(reading(0, busy(9, 90), tokens_predicted_total=100.0))
    assert board.take(reading(1, busy(9, 3), tokens_predicted_total=3.0)).speed == 0


def test_guesses_as_they_are_counted() -> None:
    def counts(at: float, drafted: float, accepted: float, steps: float) -> Reading:
        told = {
            "spec_decode_num_draft_tokens_total": drafted,
            "spec_decode_num_accepted_tokens_total": accepted,
            "spec_decode_num_drafts_total": steps,
        }
        return Reading(at, True, metrics=told, accepted_at=(accepted * 0.75, accepted * 0.25))

    board = Board("x")
    assert board.take(counts(0, 0, 0, 0)).guesses is None
    first = board.take(counts(1, 100, 40, 50)).guesses
    assert first is not None
    assert (first.acceptance, first.mean_length, first.lately) == (0.4, 1.8, 0.4)
    assert first.by_depth == (0.6, 0.2)
    later = board.take(counts(2, 200, 140, 100)).guesses
    assert later is not None
    assert later.lately is not None
    assert 0.4 < later.lately < 1
    assert (later.drafted, later.accepted, later.acceptance) == (200, 140, 0.7)


def test_a_server_that_is_lost_and_found() -> None:
    board = Board("x")
    board.take(Reading(0, True, "m", slots=(busy(1, 10),)))
    lost = board.lost("x cannot be reached")
    assert (lost.model, lost.fault, lost.slots) == ("m", "x cannot be reached", None)
    assert lost.record()["state"] == "unreachable"
    found = board.take(Reading(9, True, "m", slots=(busy(1, 500),)))
    assert (found.fault, found.speed) == ("", None)  # nobody knows when they came


# Servers


def test_a_server_is_read() -> None:
    pages, clock = Pages.usual(), count(5)
    with serving(pages) as url, closing(Server(f"{url}/v1/", api_key="secret", clock=lambda: next(clock))) as source:
        found = source.read()
        assert source.url == url
    assert (found.at, found.ready, found.model, found.build, found.missing) == (
        5,
        True,
        "smol.gguf",
        "b6500-abcdef",
        (),
    )
    assert found.metric("requests_deferred") == 2
    assert found.slots is not None
    assert [one.decoded for one in found.slots] == [20, 0]
    assert set(pages.keys) == {"Bearer secret"}


def test_what_a_server_does_not_tell_is_left_out() -> None:
    off = {
        "slots": refusal(501, "This server does not support slots endpoint. Start it with `--slots`"),
        "metrics": refusal(501, "This server does not support metrics endpoint. Start it with `--metrics`"),
        "props": (200, "<html>"),
    }
    with serving(Pages.usual(**off)) as url, closing(Server(url)) as source:
        found, board = source.read(), Board(url)
    assert (found.slots, found.metrics, found.model) == (None, None, "")
    assert found.missing == (
        "/props is no JSON",
        "/slots answers 501: start the server without --no-slots",
        "/metrics answers 501: start the server with --metrics",
    )
    told = "\n".join(lines(board.take(found), 60))
    assert "start the server with --metrics" in " ".join(told.split())
    assert "ready" in told


def test_a_server_that_loads_is_no_fault() -> None:
    with serving(Pages.usual(health=refusal(503, "Loading model"))) as url, closing(Server(url)) as source:
        found = source.read()
    assert not found.ready
    assert "loading its model" in "\n".join(lines(Board(url).take(found), 60))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"health": (404, "no")}, "/health answers 404"),
        ({"slots": (401, "{}")}, "/slots wants another key"),
    ],
)
def test_servers_that_are_none(changes: dict[str, tuple[int, str]], message: str) -> None:
    with (
        serving(Pages.usual(**changes)) as url,
        closing(Server(url)) as source,
        pytest.raises(NetworkError, match=message),
    ):
        source.read()


def test_addresses_that_are_none() -> None:
    for url in ("localhost", "ftp://a", "http://", "http://a b"):
        with pytest.raises(UsageError, match="is not the URL of a server"):
            Server(url)


# Words


def views() -> Iterator[object]:
    mock, board = Mock(), Board("mock")
    for _ in range(40):
        yield board.take(mock.read())


def test_a_made_up_server_is_always_the_same_and_fits() -> None:
    one, other = list(views()), list(views())
    assert one == other
    for view in one:
        for width in (36, 60, 100):
            assert max(map(len, lines(view, width))) <= width  # type: ignore[arg-type]
    last = one[-1]
    text = "\n".join(lines(last, 60))  # type: ignore[arg-type]
    for word in ("mock-model.gguf", "tok/s", "accepted", "length", "depth 4", "slot"):
        assert word in text


def test_ascii_is_ascii() -> None:
    for view in views():
        assert "\n".join(lines(view, 60, plain=True)).isascii()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("share", "drawn"), [(0, ".........."), (0.44, "####......"), (1, "##########"), (7, "##########")]
)
def test_bars(share: float, drawn: str) -> None:
    assert bar(share, plain=True) == drawn


def test_names_cannot_steer_the_terminal() -> None:
    view = Board("x").take(Reading(0, True, "a\x1b[2J\nb", slots=()))
    assert all(line.isprintable() for line in lines(view, 60))


# The command


def test_once_as_text_and_as_json() -> None:
    with serving(Pages.usual()) as url:
        text = run("top", "-u", url, "--once", "--interval", "0.1")
        told = run("top", "-u", url, "--once", "--interval", "0.1", "--json")
    assert (text.returncode, text.stderr) == (0, b""), text
    said = text.stdout.decode()
    for part in ("accepted 50 % (50/100)", "mean 62.5 tok/s", "64 of prompts reused", "1 running · 2 waiting"):
        assert part in said
    record = json.loads(told.stdout)
    assert (record["state"], record["acceptance"], record["mean_accepted_length"]) == ("ready", 0.5, 2.0)
    assert record["accepted_per_position"] == [0.8, 0.2]
    assert [one["n_decoded"] for one in record["slots"]] == [20, 0]


def test_a_server_that_is_not_there() -> None:
    line = error_line(run("top", "-u", "http://127.0.0.1:9", "--once"), ExitCode.NETWORK)
    assert "http://127.0.0.1:9 cannot be reached" in line


def test_mock_needs_no_server_and_a_pipe_no_once() -> None:
    done = run("top", "--mock", "--ascii")
    assert (done.returncode, done.stderr) == (0, b""), done
    assert done.stdout.isascii()
    assert b"mock-model.gguf" in done.stdout
