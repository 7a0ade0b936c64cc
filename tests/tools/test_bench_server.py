"""Measuring a server: what it is asked, what counts as a token, and what goes wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from localspec.errors import ExitCode, NetworkError, UsageError
from localspec.tools.bench.server import Server, ServerRunner
from localspec.tools.prompts import Prompt
from localspec.types import SamplingParams
from tests.cli.support import error_line, run
from tests.tools.server import Answers, serving, words

FAKE = "tests.tools.fake_main"
PROMPT = Prompt("1", "chat", "Say hello.")
GREEDY = SamplingParams(temperature=0, seed=1)


@contextmanager
def runner(url: str, **options: str) -> Iterator[ServerRunner]:
    with ServerRunner({"way": Server("way", url)}, GREEDY, **options) as made:
        yield made


def test_tokens_are_those_that_the_server_counts() -> None:
    timings = {"draft_n": 9, "draft_n_accepted": 4}
    answers = Answers(words("Hel", "lo ", "you", usage={"completion_tokens": 7}, timings=timings))
    with serving(answers) as url, runner(f"{url}/v1/", api_key="secret") as made:
        found = made.run("way", PROMPT, 12)
        assert made.models == {"way": "fake-model"}
    assert (found.tokens, found.text, found.ids, made.counted_by) == (7, "Hello you", None, {"usage"})
    assert found.speed is not None
    assert 0 < 6 / found.speed < found.seconds
    assert found.stats is not None
    assert (found.stats.draft_n, found.stats.accepted) == (9, 4)
    (asked,) = answers.asked
    assert (asked["model"], asked["max_tokens"], asked["temperature"], asked["stream"]) == ("fake-model", 12, 0, True)
    assert asked["messages"] == [{"role": "user", "content": "Say hello."}]
    assert asked["stream_options"] == {"include_usage": True}
    assert answers.keys == ["Bearer secret"]


def test_chunks_stand_for_tokens_that_nobody_counts() -> None:
    with serving(Answers(words("a", "b", "", "c"))) as url, runner(url, model="other") as made:
        found = made.run("way", PROMPT, 12)
        assert made.models == {"way": "other"}
    assert (found.tokens, found.text, found.stats, made.counted_by) == (3, "abc", None, {"chunks"})


def test_an_answer_without_text_has_no_speed() -> None:
    with serving(Answers([])) as url, runner(url) as made:
        found = made.run("way", PROMPT, 12)
    assert (found.tokens, found.speed, found.text, found.whole_speed) == (0, None, "", None)


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        (Answers([], models={"data": []}), "lists no model"),
        (Answers([], status=401), "wants another key"),
        (Answers([], status=500), "answers 500"),
        (Answers(["nonsense"]), "the server sends nonsense"),
        (Answers([{"error": {"message": "too long"}}]), "too long"),
    ],
)
def test_what_a_server_may_do_wrong(answers: Answers, words: str) -> None:
    with serving(answers) as url, pytest.raises(NetworkError, match=words), runner(url) as made:
        made.run("way", PROMPT, 12)


def test_the_command_compares_two_servers(tmp_path: Path) -> None:
    prompts = tmp_path / "p.txt"
    prompts.write_text("one\ntwo\n")
    fast, slow = Answers(words("a", "b", usage={"completion_tokens": 90})), Answers(words("a", "b"))
    with serving(fast) as url, serving(slow) as other:
        done = run("bench", "--server", url, "--server-baseline", other, "--prompts", str(prompts), "-r", "2", "--json")
        alone = run("bench", "--server", url, "--prompts", str(prompts), "-r", "2", "-o", "md")
    assert done.returncode == 0, done
    data = json.loads(done.stdout)
    assert data["models"] == {url: "fake-model", other: "fake-model"}
    assert (data["servers"], data["baseline"]) == ({url: url, other: other}, other)
    assert data["counted_by"] == ["chunks", "usage"]
    assert b"counts no tokens" in done.stderr
    (setting,) = data["settings"]
    assert (setting["overall"]["pairs"], setting["overall"]["equal"]) == (4, 4)
    assert setting["overall"]["ratio"]["median"] > 0
    # Without a server to compare with, nothing is said about a speed-up.
    assert alone.returncode == 0, alone
    assert "×" not in alone.stdout.decode()
    assert "no baseline in this run" in alone.stdout.decode()


def test_the_command_compares_a_model_here_with_servers(tmp_path: Path) -> None:
    """The fake model and the server never say the same; both are measured beside the same baseline."""
    prompts = tmp_path / "p.txt"
    prompts.write_text("one\n")
    answers = Answers(words("a", "b", "c"))
    with serving(answers) as url:
        done = run(
            *("bench", "-m", "a.gguf", "--prompts", str(prompts), "-n", "8", "-r", "2", "-o", "md"),
            *("--setting", "none=--spec off", "--server", f"again={url}", "--server-baseline", f"theirs={url}/v1"),
            module=FAKE,
        )
        twice = run("bench", "-m", "a.gguf", "--setting", "a=", "--server", f"a={url}", module=FAKE)
    assert "two settings are named a" in error_line(twice, ExitCode.USAGE)
    assert done.returncode == 0, done
    lines = done.stdout.decode().splitlines()
    firsts = [line.split("|")[1].strip() for line in lines if line.startswith("| ")]
    rule, mine = "---", ["none", "again"]
    assert firsts == ["", rule, "theirs", *mine, "with the prompt", rule, *mine, "", rule, *mine]
    assert "none: 2 of 2 texts differ from the theirs ones." in lines
    assert "again: " not in done.stdout.decode()
    # Warm-up and two rounds: as a baseline of two settings, and as one of them.
    assert len(answers.asked) == 2 + 2 * (2 + 1)


@pytest.mark.parametrize(
    ("text", "name", "url"),
    [
        ("http://a:1", "http://a:1", "http://a:1"),
        ("theirs, n-gram = https://a/v1/", "theirs, n-gram", "https://a/v1/"),
    ],
)
def test_a_server_may_have_a_name(text: str, name: str, url: str) -> None:
    assert Server.parse(text) == Server(name, url)


@pytest.mark.parametrize(
    "text", ["nonsense", "name=", "a=ftp://b", "http://", "http://a b", "http://a:65536", "http://a?b=c"]
)
def test_a_server_has_a_url(text: str) -> None:
    with pytest.raises(UsageError, match="is not the URL of a server"):
        Server.parse(text)


def test_nobody_is_there() -> None:
    with serving(Answers([])) as url:
        pass
    line = error_line(run("bench", "--server", url), ExitCode.NETWORK)
    assert f"{url} cannot be reached" in line
