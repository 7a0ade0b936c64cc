"""What goes in and out: standard input, stdout in its three forms, closed pipes, odd locales."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from localspec.errors import ExitCode
from tests.cli.support import ALONE, FAKE, HURRY, PLAIN, Done, command, environment, error_line, run, shell
from tests.support.gguf_files import TinyModel, TokenizerKeys

ASK = ("complete", "-m", "fake.gguf", "-s", "3", "-n", "40", "--ignore-eos")
C_LOCALE = {"LANG": "C", "LC_ALL": "C", "PYTHONIOENCODING": "ascii"}


def fake(*arguments: str, stdin: bytes = b"") -> Done:
    done = run(*ASK, *arguments, module=FAKE, stdin=stdin)
    assert done.returncode == 0, done
    return done


def strict(text: bytes | str) -> Any:
    """JSON without NaN and Infinity, and without a key twice."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len({key for key, _ in pairs}) == len(pairs)
        return dict(pairs)

    return json.loads(text, parse_constant=refuse, object_pairs_hook=once)


# The three forms of an answer


def test_text_json_and_jsonl_are_one_answer() -> None:
    text = fake("-p", "abc")
    assert text.stderr == b""
    whole = fake("-p", "abc", "--json", "--logprobs", "3")
    assert (whole.stderr, whole.stdout.count(b"\n"), whole.stdout[-1:]) == (b"", 1, b"\n")
    record = strict(whole.stdout)
    lines = fake("-p", "abc", "--jsonl", "--logprobs", "3")
    events = [strict(line) for line in lines.stdout.splitlines()]
    steps = [event for event in events if event["event"] == "tokens"]
    assert record["text"] == text.stdout.decode() == "".join(step["text"] for step in steps)
    assert [event["event"] for event in events][-1] == "finished"
    tokens = [token for step in steps for token in step["tokens"]]
    assert [token["id"] for token in tokens] == record["tokens"] == events[-1]["ids"]
    assert len(record["tokens"]) == 40 == record["usage"]["completion_tokens"]
    assert len(record["logprobs"]) == 40 == len([token for token in tokens if token["logprob"] <= 0])
    assert all(len(one["top_logprobs"]) == 3 for one in record["logprobs"])
    for pieces in ([one["bytes"] for one in record["logprobs"]], [token["piece"] for token in tokens]):
        assert b"".join(map(bytes, pieces)) == text.stdout
    assert (record["seed"], record["finish_reason"]) == (3, "length")


def test_seed_and_timings_go_to_stderr() -> None:
    done = run("complete", "-m", "fake.gguf", "-p", "abc", "-n", "5", "--show-timings", "--json", module=FAKE)
    seed, timings = done.stderr.decode().splitlines()
    assert seed == f"localspec: seed {strict(done.stdout)['seed']}"
    assert " tok" in timings


def test_a_banned_token_is_valid_json() -> None:
    done = fake("-p", "abc", "-l", "9-inf", "-l", "10-inf", "--json", "--logprobs", "40")
    record = strict(done.stdout)
    assert not {9, 10} & set(record["tokens"])


def test_failure_ends_jsonl_with_failed_and_json_with_nothing() -> None:
    done = run(*ASK, "-p", "abc", "--jsonl", module=FAKE, env={"LOCALSPEC_TEST_DIES_AT": "5"})
    assert done.returncode == ExitCode.RUNTIME
    assert strict(done.stdout.splitlines()[-1])["event"] == "failed"
    assert done.stderr.startswith(b"localspec: error: the engine process was killed by SIGKILL")
    error_line(run(*ASK, "-p", "abc", "--json", module=FAKE, env={"LOCALSPEC_TEST_DIES_AT": "5"}), ExitCode.RUNTIME)


def test_system_message_goes_through_the_template() -> None:
    plain, chatted = (strict(fake("-p", "abc", *more, "--json").stdout) for more in ((), ("-sys", "xy")))
    assert plain["usage"]["prompt_tokens"] == 3
    assert chatted["usage"]["prompt_tokens"] == len("xy\nabc\n")
    assert strict(fake("-p", "abc", "-cnv", "--json").stdout)["usage"]["prompt_tokens"] == len("abc\n")


# Standard input


@pytest.mark.parametrize(
    ("arguments", "stdin", "prompt", "mentioned"),
    [
        ((), b"abc", "abc", False),
        ((), b"\xef\xbb\xbfabc", "abc", False),
        (("-p", "-"), b"abc", "abc", False),
        (("-f", "-"), b"abc", "abc", False),
        (("-p", "xyz", "-f", "-"), b"abc", "xyz\n\nabc", False),
        (("-p", "xyz"), b"abc", "xyz", True),
        (("-p", "xyz"), b"", "xyz", False),
    ],
)
def test_where_the_prompt_comes_from(arguments: tuple[str, ...], stdin: bytes, prompt: str, mentioned: bool) -> None:
    done = fake(*arguments, "-n", "8", stdin=stdin)
    assert done.stdout == fake("-p", prompt, "-n", "8").stdout
    assert (b"standard input is not read" in done.stderr) == mentioned
    assert len(done.stderr.splitlines()) == mentioned


@pytest.mark.parametrize("redirect", ["</dev/null", "<&-"])
@pytest.mark.parametrize("arguments", [("complete",), ("complete", "-p", "-"), ("chat",)])
def test_empty_input_is_no_prompt(arguments: tuple[str, ...], redirect: str) -> None:
    done = shell(f'"$@" {redirect}', *arguments, "-m", "fake.gguf", "-n", "4", module=FAKE)
    error_line(done, ExitCode.USAGE)


def test_input_held_open_is_not_waited_for() -> None:
    theirs, ours = os.pipe()
    try:
        line = command(*ASK, "-p", "abc", module=FAKE)
        done = subprocess.run(line, stdin=theirs, capture_output=True, env=environment(), timeout=60)
    finally:
        os.close(theirs)
        os.close(ours)
    assert (done.returncode, done.stderr) == (0, b"")


def test_binary_input_is_refused() -> None:
    done = run("complete", "-m", "fake.gguf", stdin=b"abc\xff\x00", module=FAKE)
    assert "standard input is not UTF-8 text (byte 3 is 0xff)" in error_line(done, ExitCode.USAGE)


def test_too_much_input_is_refused_by_its_tokens() -> None:
    done = run(*ASK, stdin=b"a" * 20_000, module=FAKE)
    assert "the prompt has 20000 tokens, the context holds 512" in error_line(done, ExitCode.USAGE)


@pytest.mark.slow
def test_five_megabytes_are_refused(smol_tokenizer: TokenizerKeys, tmp_path: Path) -> None:
    model = TinyModel().write(tmp_path / "tiny.gguf", smol_tokenizer)
    done = run("complete", "-m", str(model), stdin=b"The quick brown fox. " * 250_000)
    assert "tokens, the context holds 2048" in error_line(done, ExitCode.USAGE)


# Closed and full outputs


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("form", [(), ("--jsonl",)])
def test_closed_pipe_ends_quietly_and_soon(form: tuple[str, ...], unbuffered: str) -> None:
    line = command("complete", "-m", "fake.gguf", "-n", "480", "--ignore-eos", "-p", "abc", *form, module=FAKE)
    env = environment({"PYTHONUNBUFFERED": unbuffered})
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(20)
        process.stdout.close()
        closed = time.monotonic()
        assert process.stderr.read().replace(b"localspec: seed", b"").strip().isdigit()
        assert process.wait(30) == 0
        assert time.monotonic() - closed < 5  # the answer takes twice as long


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", ">&- 2>&- <&-"])
def test_stdout_closed_from_the_start(closed: str) -> None:
    done = shell(f'"$@" {closed}', *ASK, "-p", "abc", module=FAKE, env=HURRY)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("closed", ["2>&-", "2>&- <&-"])
def test_stderr_closed_from_the_start(closed: str) -> None:
    done = shell(f'"$@" {closed}', *ASK, "-p", "abc", module=FAKE, env=HURRY)
    assert (done.returncode, done.stdout) == (0, fake("-p", "abc").stdout)
    assert shell(f'"$@" {closed}', "complete", "--nope").returncode == ExitCode.USAGE


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("arguments", [(*ASK, "-p", "abc"), (*ASK, "-p", "abc", "--json"), ("--version",), ("-h",)])
def test_full_disk_is_one_line(arguments: tuple[str, ...]) -> None:
    done = shell('"$@" >/dev/full', *arguments, module=FAKE, env=HURRY)
    assert done.returncode == ExitCode.RUNTIME
    assert done.stderr.decode().splitlines() == ["localspec: error: [Errno 28] No space left on device"]


# Bytes and locales


def test_every_character_is_written_as_utf_8(smol: Path) -> None:
    prompt = "😀😀😀😀😀😀😀😀😀😀"
    arguments = ("complete", "-m", str(smol), *ALONE, "-n", "12", "-p", prompt)
    ascii_only = run(*arguments, env=C_LOCALE)
    assert (ascii_only.returncode, ascii_only.stderr) == (0, b"")
    assert "😀" in ascii_only.stdout.decode()
    record = strict(run(*arguments, "--json", "--logprobs", "0").stdout)
    assert record["text"].encode() == ascii_only.stdout
    pieces = b"".join(bytes(one["bytes"]) for one in record["logprobs"])
    assert pieces.startswith(record["text"].rstrip("\ufffd").encode())


def test_signs_of_our_own_lines_degrade() -> None:
    told = [fake("-p", "abcabc", "--show-timings").stderr.decode()]
    ascii_only = run(*ASK, "-p", "abcabc", "--show-timings", module=FAKE, env=C_LOCALE)
    told.append(ascii_only.stderr.decode("ascii"))
    assert ascii_only.returncode == 0
    assert " · " in told[0]
    assert " | " in told[1]
    assert "\\" not in told[1]


def test_odd_path_of_models(smol_tokenizer: TokenizerKeys, tmp_path: Path) -> None:
    folder = tmp_path / "модель ü (1)"
    folder.mkdir()
    path, log = TinyModel().write(folder / "[m].gguf", smol_tokenizer), folder / "a log"
    for env in ({}, C_LOCALE):
        models = ("-m", str(path), "-md", str(path), "--log-file", str(log))
        done = run("complete", *models, "-p", "a", "-n", "2", *PLAIN, "--json", env=env)
        assert done.returncode == 0, done
        assert strict(done.stdout)["model"] == str(path)
    assert log.stat().st_size


def test_stop_strings(beginning: Path) -> None:
    arguments = ("complete", "-m", str(beginning), *ALONE, "-n", "16", "-p", "Count: one, two, three,")
    free = run(*arguments).stdout.decode()
    stop = free[7:16]
    cut = strict(run(*arguments, "--stop", stop, "--json").stdout)
    assert (cut["text"], cut["finish_reason"], cut["stop"]) == (free[: free.index(stop)], "stop", stop)
    text = run(*arguments, "--stop", stop, "--stop", "never comes").stdout.decode()
    assert text == cut["text"]
    almost = run(*arguments, "--stop", free[-3:] + "!").stdout.decode()
    assert almost == free


def test_stop_at_the_name_of_a_control_token(smol: Path) -> None:
    arguments = ("complete", "-m", str(smol), *ALONE, "-n", "40", "-cnv", "-p", "Say hi.", "--json")
    record = strict(run(*arguments, "--stop", "<|im_end|>").stdout)
    assert (record["finish_reason"], record["stop"]) == ("stop", "<|im_end|>")
    assert "<|im_end|>" not in record["text"]
