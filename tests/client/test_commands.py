"""``chat``, ``complete`` and ``batch`` with ``--server``, as somebody uses them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from localspec.errors import ExitCode
from tests.batch.support import lines, records
from tests.cli.support import Terminal, error_line, plain, run
from tests.client.server import Script, busy, dies, echoes, fails, says, serving, stalls
from tests.server.support import serving as own_server

TIMINGS = {"predicted_n": 9, "predicted_ms": 500.0, "predicted_per_second": 16.0, "draft_n": 6, "draft_n_accepted": 5}


def test_one_question() -> None:
    script = Script([says("Hel", "lo", timings=TIMINGS)])
    with serving(script) as url:
        done = run("chat", "--server", url, "-c", "99", "--api-key", "k", "--temp", "0", "-s", "4", stdin=b"hi")
    assert (done.returncode, done.stdout) == (0, b"Hello\n"), done
    assert "9 tok · 16 tok/s · accepted 83 % (5/6)" in done.stderr.decode()
    assert script.asked[0]["messages"] == [{"role": "user", "content": "hi"}]
    assert (script.asked[0]["temperature"], script.asked[0]["seed"]) == (0, 4)
    assert set(script.keys) == {"Bearer k"}


@pytest.mark.parametrize("command", ["chat", "complete", "batch"])
@pytest.mark.parametrize("option", [("-m", "x.gguf"), ("-md", "x.gguf"), ("-ngl", "3"), ("-t", "2"), ("--rpc", "a:1")])
def test_what_belongs_to_an_engine_is_refused_by_name(command: str, option: tuple[str, ...]) -> None:
    done = run(command, "--server", "http://127.0.0.1:9", *option, stdin=b"hi")
    assert option[0] in error_line(done, ExitCode.USAGE)


@pytest.mark.parametrize("command", ["chat", "complete"])
def test_one_server_answers(command: str) -> None:
    done = run(command, "--server", "http://127.0.0.1:9", "--server", "http://127.0.0.1:8", stdin=b"hi")
    assert "Give --server once." in error_line(done, ExitCode.USAGE)


def test_what_a_file_says_of_models_here_does_not_matter(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('model = "nowhere.gguf"\ngpu-layers = "7"\ntemp = 0.25\n')
    script = Script([says("x")])
    with serving(script) as url:
        done = run("chat", "--server", url, "--config", str(config), stdin=b"hi")
    assert done.returncode == 0, done
    assert script.asked[0]["temperature"] == 0.25


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--min-p", "0.2"), ExitCode.USAGE, "min_p is set, which this server does not know"),
        (("--spec", "off"), ExitCode.USAGE, "--spec"),
        (("--server-model", ""), ExitCode.OK, ""),
    ],
)
def test_what_the_server_does_not_know(arguments: tuple[str, ...], code: ExitCode, words: str) -> None:
    with serving(Script([says("x")])) as url:
        done = run("chat", "--server", url, *arguments, stdin=b"hi")
    assert done.returncode == code, done
    assert words in done.stderr.decode()


def test_thinking_where_the_template_is_known_and_where_it_is_not() -> None:
    """A server's own template says how thinking is turned off; else only its text can be hidden, and a line says so."""
    template = "{% if enable_thinking %}<think>{% endif %}"
    for pages, told in (({"/props": {"chat_template": template}}, True), ({}, False)):
        script = Script([says(" yes", thinking="hm")], owner="llamacpp", pages=pages)
        with serving(script) as url:
            done = run("chat", "--server", url, "-rea", "off", "-c", "99", stdin=b"hi")
        assert (done.returncode, done.stdout) == (0, b"yes\n"), done
        assert ("the chat template is not known" in done.stderr.decode()) is not told
        assert script.asked[0].get("chat_template_kwargs") == ({"enable_thinking": False} if told else None)


def test_nobody_answers() -> None:
    with serving(Script([echoes])) as url:
        pass
    for command in ("chat", "complete", "batch"):
        done = run(command, "--server", url, stdin=b'{"prompt": "hi"}')
        assert done.returncode == ExitCode.NETWORK
        assert "cannot be reached" in done.stderr.decode()


def test_an_answer_that_breaks_off() -> None:
    with serving(Script([dies])) as url:
        done = run("chat", "--server", url, "-c", "99", stdin=b"hi")
    assert (done.returncode, done.stdout) == (ExitCode.NETWORK, b"half\n")
    assert "broke off" in done.stderr.decode()


def test_a_conversation_at_the_prompt() -> None:
    """ctrl-c stops a slow answer at once; what needs an engine here says so, in one line; the chat goes on."""
    answers = [says("one"), stalls, says("three")]
    arguments = ("--no-tui", "--no-save-session", "-c", "999", "--no-show-timings")
    with serving(Script(answers)) as url, Terminal("chat", "--server", url, *arguments) as terminal:
        assert f"answers from {url}" in plain(terminal.prompt())
        terminal.send(b"first\r")
        terminal.until(b"one")
        terminal.prompt()
        for command, words in (
            (b"/model x.gguf", "/model needs an engine here"),
            (b"/draft off", "/draft needs an engine here"),
            (b"/step on", "/step needs an engine here"),
            (b"/trace on", "/trace on needs an engine here"),
            (b"/set ctx-size 9", "ctx-size belongs to the server"),
            (b"/set threads 2", "threads belongs to the server"),
            (b"/spec off", "spec is not for"),
            (b"/stats", "the server tells nothing of them"),
            (b"/set temp 0.5", "temp = 0.5"),
        ):
            terminal.send(command + b"\r")
            assert words in " ".join(plain(terminal.prompt()).split()), command
        terminal.send(b"second\r")
        terminal.until(b"so far")
        terminal.send(b"\x03")
        terminal.prompt()
        terminal.send(b"third\r")
        terminal.until(b"three")
        terminal.prompt()
        terminal.send(b"\x04")
        assert terminal.end()[0] == 0


def test_our_own_server_guesses_as_the_conversation_says() -> None:
    messages = b"hello\n/spec\n/spec off\nhello\n/spec tree-nodes 8\n/model x.gguf\n/regen\n"
    with own_server() as site:
        done = run("chat", "--simple-io", "--server", site.url, "-n", "24", "--temp", "0", stdin=messages)
    said = done.stderr.decode()
    assert done.returncode == 0, done
    assert "speculation is auto: ngram-simple" in said
    assert "speculation is off from the next turn on" in said
    assert said.count("24 tok · ") == 3
    assert said.count("speculation off") == 2
    assert "tree-nodes = 8\n" in said
    assert "/model needs an engine here" in said


@pytest.mark.parametrize("command", ["chat", "complete", "batch"])
def test_an_address_that_is_none(command: str) -> None:
    """An empty one neither: a variable of a script may be."""
    for url in ("", "gpu-box:8080"):
        assert "is not the URL of a server" in error_line(run(command, "--server", url, stdin=b"hi"), ExitCode.USAGE)


def test_a_prompt_that_is_gone_on_with() -> None:
    with serving(Script([says(" and", " on")], owner="llamacpp")) as url:
        done = run("complete", "--server", url, "-p", "On", "--json", "-s", "3")
    record = json.loads(done.stdout)
    assert (record["text"], record["seed"], record["model"], record["tokens"]) == (" and on", 3, "their-model", None)
    assert record["usage"] == {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}


def test_batch_over_two_servers_loses_nothing_and_does_nothing_twice(tmp_path: Path) -> None:
    """One of them dies now and then, the other is busy now and then."""
    count = [0]

    def frail(reply: Any, body: Any) -> None:
        count[0] += 1
        (dies if count[0] == 3 else echoes)(reply, body)

    items = [{"id": at, "messages": [{"role": "user", "content": f"q{at}"}]} for at in range(40)]
    out = tmp_path / "out.jsonl"
    with serving(Script([frail])) as one, serving(Script([busy("0"), busy("0", 429), echoes])) as other:
        done = run("batch", "-", "--server", one, "--server", other, "-np", "3", "-o", str(out), stdin=lines(items))
    assert done.returncode == 0, done
    found = records(out)
    assert sorted((record["id"], record["text"]) for record in found) == [(at, f"<q{at}>") for at in range(40)]
    assert "40 lines" in done.stderr.decode()


def test_batch_goes_on_where_servers_were_gone(tmp_path: Path) -> None:
    """Half of the lines are there; with --resume another server makes the rest."""
    items = [{"id": at, "prompt": f"q{at}"} for at in range(10)]
    out, source = tmp_path / "out.jsonl", tmp_path / "in.jsonl"
    arguments = ("batch", str(source), "-o", str(out), "-s", "7", "-n", "4", "--server")
    source.write_bytes(lines(items[:5]))
    with serving(Script([echoes])) as url:
        assert run(*arguments, url).returncode == 0
    source.write_bytes(lines(items))
    assert run(*arguments, url, "--resume").returncode == ExitCode.NETWORK
    assert len(records(out)) == 5
    script = Script([echoes])
    with serving(script) as url:
        assert run(*arguments, url, "--resume").returncode == 0
    assert sorted(record["text"] for record in records(out)) == [f"<q{at}>" for at in range(10)]
    assert len(script.asked) == 5


def test_batch_has_errors_in_place(tmp_path: Path) -> None:
    def picky(reply: Any, body: Any) -> None:
        (fails(400, "too long") if body["prompt"] == "long" else echoes)(reply, body)

    items = [{"prompt": "a"}, {"prompt": "long"}, {"prompt": "b", "top_k": "x"}, {"prompt": "c"}]
    with serving(Script([picky], owner="llamacpp")) as url:
        done = run("batch", "-", "--server", url, "--ordered", stdin=lines(items))
    assert done.returncode == ExitCode.PARTIAL
    found = records(done.stdout)
    assert [record.get("text") for record in found] == ["<a>", None, None, "<c>"]
    assert [record["error"]["code"] for record in found if "error" in record] == [2, 2]
    assert "too long" in found[1]["error"]["message"]
    assert "2 of 4 failed" in done.stderr.decode()


def test_batch_at_our_own_server_is_as_without_it() -> None:
    """Seeds follow from -s and the line, wherever it is answered."""
    items = [{"messages": [{"role": "user", "content": "abc"[: 1 + at % 3]}], "temp": 0.9} for at in range(6)]
    with own_server() as one, own_server() as other:
        texts = []
        for servers in ([one.url], [one.url, other.url]):
            flags = [word for url in servers for word in ("--server", url)]
            done = run("batch", "-", *flags, "-s", "7", "-n", "12", "--ordered", stdin=lines(items))
            assert done.returncode == 0, done
            texts.append([(record["seed"], record["text"]) for record in records(done.stdout)])
    assert texts[0] == texts[1]
    assert len({text for _, text in texts[0]}) > 1
    with own_server() as one:
        assert (
            one.chat(messages=items[2]["messages"], temperature=0.9, seed=texts[0][2][0])["choices"][0]["message"][
                "content"
            ]
            == texts[0][2][1]
        )


def test_batch_tells_no_steps_of_a_server() -> None:
    done = run("batch", "-", "--server", "http://127.0.0.1:9", "--spec-metrics", "detailed", stdin=b"")
    assert "--spec-metrics detailed" in error_line(done, ExitCode.USAGE)


def test_the_full_screen() -> None:
    """Escape ends an answer of a slow server; models to pick from are for engines here."""
    answers = [says("first"), stalls, says("again")]
    with serving(Script(answers)) as url, Terminal("chat", "--tui", "--no-save-session", "--server", url) as terminal:
        terminal.until(b"ready")
        terminal.send(b"hi\r")
        terminal.until(b"first")
        terminal.send(b"more\r")
        terminal.until(b"so far")
        terminal.send(b"\x1b")
        terminal.until(b"stopped")
        terminal.send(b"\x1b[18~")  # F7
        terminal.until(b"has its")
        terminal.send(b"last\r")
        terminal.until(b"again")
        terminal.send(b"\x11")
        assert terminal.end()[0] == 0
