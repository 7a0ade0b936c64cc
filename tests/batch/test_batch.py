"""``localspec batch`` over an engine without weights: every line has its answer, whatever happens."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from localspec.errors import ExitCode
from localspec.tools.batch.parse import line_seed
from tests.batch.factories import POISON
from tests.batch.support import FAKE, USUAL, batch, lines, records, some_lines, told
from tests.cli.support import Terminal, error_line, plain, run, shell

THIRTY = some_lines(30)


@pytest.fixture(scope="module")
def alone() -> dict[int, dict[str, Any]]:
    """What thirty lines are answered one after the other, without guesses."""
    done = batch("-np", "1", "--spec", "off", stdin=lines(THIRTY))
    assert done.returncode == 0, done
    return {record["line"]: record for record in records(done.stdout)}


def test_a_line_an_answer(alone: dict[int, dict[str, Any]]) -> None:
    assert list(alone) == list(range(1, 31))
    for line, record in alone.items():
        assert record["id"] == THIRTY[line - 1]["id"]
        assert record["seed"] == line_seed(7, line)
        assert record["finish_reason"] in ("stop", "length")
        assert record["usage"]["completion_tokens"] == len(record["tokens"])
        assert {"timings", "speculation", "model", "stop"} <= record.keys()
    assert len({record["text"] for record in alone.values()}) > 10


@pytest.mark.parametrize("parallel", ["1", "2", "7", "32"])
@pytest.mark.parametrize("spec", [("--spec", "fixed"), ("--spec", "auto", "--spec-tree-width", "2"), ("--spec", "off")])
def test_texts_are_the_same_for_any_number_at_a_time_and_any_guesses(
    parallel: str, spec: tuple[str, ...], alone: dict[int, dict[str, Any]]
) -> None:
    done = batch("-", "-np", parallel, *spec, stdin=lines(THIRTY))
    assert done.returncode == 0, done
    got = {record["line"]: told(record) for record in records(done.stdout)}
    assert got == {line: told(record) for line, record in alone.items()}


def test_the_order_of_the_input(tmp_path: Path) -> None:
    """Long answers first: without the flag the short ones overtake them."""
    items = [{"prompt": "abc", "n_predict": 60 if i % 4 == 0 else 1, "ignore_eos": True} for i in range(20)]
    free, ordered = (
        [record["line"] for record in records(batch("-", "-np", "4", *flags, stdin=lines(items)).stdout)]
        for flags in ((), ("--ordered",))
    )
    assert ordered == list(range(1, 21))
    assert sorted(free) == ordered != free


def test_bad_lines_have_errors_in_their_places() -> None:
    """I03: what can be wrong with a line, beside lines that are right."""
    good = b'{"id": "good", "prompt": "abc"}'
    long = json.dumps({"id": "long", "prompt": "a" * 2000}).encode()
    wrong = [b"{oops", b"\xff\xfe", b"17", b'{"id": "none"}', long, b'{"id": "odd", "prompt": "a", "temp": "x"}']
    data = b"\xef\xbb\xbf" + b"\r\n".join([good, b"", *wrong, b'{"id": "good", "prompt": "abc"}'])
    done = batch("-", "-np", "3", "--ordered", "-c", "512", stdin=data)
    got = records(done.stdout)
    assert done.returncode == ExitCode.PARTIAL
    assert [(record["line"], record["id"]) for record in got] == [
        *((1, "good"), (3, None), (4, None), (5, None), (6, "none"), (7, "long"), (8, "odd"), (9, "good")),
    ]
    assert ["error" in record for record in got] == [False, *[True] * 6, False]
    errors = [record["error"] for record in got if "error" in record]
    assert [error["type"] for error in errors] == [*["UsageError"] * 4, "PromptError", "UsageError"]
    assert all(error["code"] == ExitCode.USAGE and error["hint"] for error in errors)
    assert "the prompt has 2000 tokens, the context holds 512" in errors[4]["message"]
    assert "6 of 8 failed" in done.stderr.decode()


@pytest.mark.parametrize("data", [b"", b"\n\n \n"])
def test_nothing_to_answer(data: bytes) -> None:
    done = batch("-", stdin=data)
    assert (done.returncode, done.stdout) == (0, b"")


def test_lines_of_openai() -> None:
    chat = {"model": "gpt-4o", "messages": [{"role": "user", "content": "abc"}], "max_tokens": 5, "logprobs": True}
    items = [
        {"custom_id": "one", "method": "POST", "url": "/v1/chat/completions", "body": {**chat, "top_logprobs": 2}},
        {"custom_id": "two", "method": "POST", "url": "/v1/completions", "body": {"prompt": "ab", "logprobs": 1}},
        {"custom_id": "three", "method": "POST", "url": "/v1/chat/completions", "body": {**chat, "tools": [{}]}},
        {"custom_id": "four", "method": "POST", "url": "/v1/embeddings", "body": {"input": "abc"}},
    ]
    done = batch("-", "--ordered", stdin=lines(items))
    one, two, three, four = records(done.stdout)
    assert done.returncode == ExitCode.PARTIAL
    assert [record["custom_id"] for record in (one, two, three, four)] == ["one", "two", "three", "four"]
    assert one["error"] is None
    assert one["response"]["status_code"] == 200
    body = one["response"]["body"]
    assert (body["object"], body["model"]) == ("chat.completion", "Slow")
    assert body["choices"][0]["message"]["role"] == "assistant"
    assert body["usage"]["total_tokens"] == body["usage"]["prompt_tokens"] + body["usage"]["completion_tokens"]
    tokens = body["choices"][0]["logprobs"]["content"]
    assert len(tokens) == body["usage"]["completion_tokens"]
    assert all(len(token["top_logprobs"]) == 2 and token["logprob"] <= 0 for token in tokens)
    assert (two["response"]["body"]["object"], set(two["response"]["body"]["choices"][0])) == (
        "text_completion",
        {"index", "text", "logprobs", "finish_reason"},
    )
    told = two["response"]["body"]["choices"][0]["logprobs"]
    assert [at + len(text) for at, text in zip(told["text_offset"], told["tokens"], strict=True)] == [
        *told["text_offset"][1:],
        sum(map(len, told["tokens"])),
    ]
    assert three["response"]["status_code"] == 400
    assert three["response"]["body"]["error"]["type"] == "invalid_request_error"
    assert (four["response"], four["error"]["code"]) == (None, "invalid_line")


def test_detailed_metrics_add_up() -> None:
    item = {"prompt": "abcabcabcabc", "n_predict": 30, "ignore_eos": True}
    done = batch("-", "--spec", "fixed", "--spec-metrics", "detailed", stdin=lines([item]))
    (record,) = records(done.stdout)
    speculation = record["speculation"]
    steps = speculation["per_step"]
    assert len(steps) == speculation["steps"]
    assert sum(step["draft_n"] for step in steps) == speculation["draft_n"] > 0
    assert sum(step["draft_n_accepted"] for step in steps) == speculation["draft_n_accepted"]
    assert sum(step["emitted"] for step in steps) == len(record["tokens"])
    assert all(step["tree"]["parents"] for step in steps)
    assert "per_step" not in records(batch("-", stdin=lines([item])).stdout)[0]["speculation"]


def test_metadata_comes_back() -> None:
    (record,) = records(batch("-", stdin=lines([{"prompt": "a", "metadata": {"k": [1, None]}}])).stdout)
    assert (record["metadata"], record["id"]) == ({"k": [1, None]}, None)


def test_thinking_and_a_seed_that_was_drawn() -> None:
    done = run("batch", "-", "-m", "any.gguf", "-n", "4", module=FAKE, stdin=lines([{"prompt": "abc"}]))
    (record,) = records(done.stdout)
    base = re.search(r"^localspec: seed (\d+)$", done.stderr.decode(), re.MULTILINE)
    assert base
    assert record["seed"] == line_seed(int(base[1]), 1)


def test_what_a_grammar_bounds_is_all_answer() -> None:
    one: dict[str, Any] = {"messages": [{"role": "user", "content": "abc"}]}
    asked = [one, one | {"grammar": 'root ::= "<think>no"'}, one]
    done = run(
        "batch", "-", "-m", "thinks.gguf", "-s", "3", "--ordered", module="tests.cli.repl.fake_main", stdin=lines(asked)
    )
    told = [(record["text"], record.get("thinking")) for record in records(done.stdout)]
    assert told[1] == ("<think>no", None)
    assert told[0] == told[2] == ("yes.", "let me \x1b[31m see")


def test_resuming(tmp_path: Path, alone: dict[int, dict[str, Any]]) -> None:
    """What is there stays to the byte; what was torn or missing is answered, as it would have been."""
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(lines(THIRTY))
    assert batch(str(source), "-o", str(out), "-np", "5").returncode == 0
    whole = out.read_bytes()
    cut = len(whole) * 2 // 3
    out.write_bytes(whole[:cut])
    done = batch(str(source), "-o", str(out), "-np", "3", "--resume")
    assert done.returncode == 0
    assert re.search(r"\d+ were done before", done.stderr.decode())
    kept = whole[:cut].rpartition(b"\n")[0] + b"\n"
    assert out.read_bytes().startswith(kept)
    assert {record["line"]: told(record) for record in records(out)} == {n: told(alone[n]) for n in alone}
    assert len(records(out)) == 30
    again = batch(str(source), "-o", str(out), "--resume")
    assert (again.returncode, len(records(out))) == (0, 30)
    assert "nothing is left to do: 30/30 lines" in again.stderr.decode()


def test_failures_of_an_earlier_run_still_count(tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(b"oops\n" + lines([{"prompt": "a"}]))
    assert batch(str(source), "-o", str(out)).returncode == ExitCode.PARTIAL
    assert batch(str(source), "-o", str(out), "--resume").returncode == ExitCode.PARTIAL
    source.write_bytes(source.read_bytes() + lines([{"prompt": "b"}]))
    assert batch(str(source), "-o", str(out), "--resume").returncode == ExitCode.PARTIAL
    assert len(records(out)) == 3


def test_the_first_failure_may_be_the_last(tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    items: list[Any] = [{"prompt": "abc"}] * 40
    items[5] = {"prompt": 5}
    source.write_bytes(lines(items))
    done = batch(str(source), "-o", str(out), "--fail-fast", "-np", "2")
    assert done.returncode == ExitCode.PARTIAL
    assert "stopped at line 6: prompt is no text" in done.stderr.decode()
    assert len(records(out)) < 40


@pytest.mark.parametrize("parallel", ["1", "4"])
def test_a_line_that_kills_the_engine_takes_no_other_along(parallel: str, alone: dict[int, dict[str, Any]]) -> None:
    items = list(THIRTY[:12])
    items[4] = items[9] = {"id": "poison", "prompt": [5, POISON, 6]}
    done = batch("-", "-np", parallel, stdin=lines(items))
    got = {record["line"]: record for record in records(done.stdout)}
    assert done.returncode == ExitCode.PARTIAL
    assert sorted(got) == list(range(1, 13))
    for line, record in got.items():
        if line in (5, 10):
            assert record["error"]["type"] == "EngineDied"
            assert "SIGKILL" in record["error"]["message"]
        else:
            assert told(record) == told(alone[line])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nothing.jsonl",), "nothing.jsonl cannot be read: No such file or directory"),
        (("folder",), "folder cannot be read: Is a directory"),
        (("in.jsonl", "-o", "in.jsonl"), "is the input, too"),
        (("in.jsonl", "-o", "no/folder/out.jsonl"), "cannot be written"),
        (("in.jsonl", "-o", "full.jsonl"), "is there already"),
        (("in.jsonl", "--resume"), "--resume is given without a file"),
        (("in.jsonl", "-o", "other.txt", "--resume"), "is not of a batch"),
        (("in.jsonl", "-np", "0"), "-np 0 is out of range"),
        (("in.jsonl", "--exact", "-np", "4"), "--exact and -np"),
        (("in.jsonl", "--spec-metrics", "all"), "is not possible"),
    ],
    ids=str,
)
def test_mistakes_are_one_line(
    arguments: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.jsonl").write_bytes(lines([{"prompt": "a"}]))
    (tmp_path / "full.jsonl").write_bytes(lines([{"line": 1, "id": None}]))
    (tmp_path / "other.txt").write_bytes(b"some\ntext\n")
    (tmp_path / "folder").mkdir()
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    assert words.removeprefix("-np ") in error_line(batch(*arguments), ExitCode.USAGE)
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def test_a_reader_that_has_enough(tmp_path: Path) -> None:
    """I01: ``| head -1`` ends it quietly."""
    path = tmp_path / "in.jsonl"
    path.write_bytes(lines([{"prompt": "abc"}] * 2000))
    done = shell('"$@" | head -1; exit ${PIPESTATUS[0]}', "batch", str(path), *USUAL, module=FAKE)
    assert (done.returncode, len(records(done.stdout))) == (0, 1)
    assert b"Traceback" not in done.stderr


def test_standard_input_that_is_closed() -> None:
    """I02."""
    done = shell('"$@" <&-', "batch", "-", *USUAL, module=FAKE)
    assert done.returncode in (0, ExitCode.USAGE)
    assert b"Traceback" not in done.stderr


def test_at_a_terminal_an_input_is_named() -> None:
    with Terminal("batch", *USUAL, module=FAKE) as terminal:
        code, seen = terminal.end()
    assert code == ExitCode.USAGE
    assert "there is nothing to answer. Name a file, or pipe lines in." in plain(seen)


def test_progress_is_for_terminals(tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(lines(THIRTY))
    with Terminal("batch", str(source), "-o", str(out), *USUAL, module=FAKE) as terminal:
        code, seen = terminal.end()
    shown = plain(seen)
    assert code == 0
    assert re.search(r"\d+/30 lines · .*tok/s · .*\d:\d\d left", shown)
    assert re.search(r"localspec: 30 lines in \d:\d\d", shown)
    done = batch(str(source), stdin=b"")
    assert b"left" not in done.stderr
    assert len(done.stderr.splitlines()) == 1
