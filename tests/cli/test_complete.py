"""``localspec complete``: thinking, and what the template does with the messages."""

from __future__ import annotations

import json
import re

import pytest

from tests.cli.support import Terminal, plain, run

FAKE = "tests.cli.repl.fake_main"
ASK = ("complete", "-m", "thinks.gguf", "-s", "3", "-p", "abc")
HARMLESS = "thinking: let me \ufffd[31m see"


def test_thinking_goes_to_stderr_and_the_answer_to_stdout() -> None:
    done = run(*ASK, "-cnv", module=FAKE)
    assert (done.stdout, done.stderr.decode()) == (b"yes.", f"{HARMLESS}\n")


def test_thinking_stands_before_the_answer_at_a_terminal() -> None:
    with Terminal(*ASK, "-cnv", module=FAKE, env={"NO_COLOR": "1"}) as terminal:
        code, seen = terminal.end()
    assert code == 0
    assert plain(seen).endswith(f"{HARMLESS}\r\nyes.\r\n")
    assert b"\x1b" not in seen


@pytest.mark.parametrize("form", [(), ("--json",), ("--jsonl",)])
def test_thinking_can_be_hidden(form: tuple[str, ...]) -> None:
    done = run(*ASK, "-cnv", "--reasoning", "off", *form, module=FAKE)
    assert b"let me" not in done.stdout + done.stderr
    assert _answer(done.stdout, form) == "yes."


@pytest.mark.parametrize("mode", ["auto", "on", "off"])
@pytest.mark.parametrize("form", [(), ("--json",), ("--jsonl",)])
def test_what_a_grammar_bounds_is_all_answer(form: tuple[str, ...], mode: str) -> None:
    done = run(*ASK, "-cnv", "--reasoning", mode, "--grammar", 'root ::= "<think>no"', *form, module=FAKE)
    assert _answer(done.stdout, form) == "<think>no"
    assert b"thinking: " not in done.stderr


def test_json_has_thinking_apart() -> None:
    record = json.loads(run(*ASK, "-cnv", "--json", module=FAKE).stdout)
    assert (record["text"], record["thinking"]) == ("yes.", "let me \x1b[31m see")
    done = run(*ASK, "-cnv", "--jsonl", module=FAKE)
    thinking = [line for line in map(json.loads, done.stdout.splitlines()) if line["event"] == "thinking"]
    assert thinking == [{"event": "thinking", "text": "let me \x1b[31m see"}]
    assert _answer(done.stdout, ("--jsonl",)) == "yes."


def test_a_prompt_that_goes_through_no_template_is_gone_on_with_as_it_is() -> None:
    assert run(*ASK, module=FAKE).stdout == b"<think>let me \x1b[31m see</think>yes."


def test_what_the_template_does_with_messages_is_said() -> None:
    done = run(*ASK, "-sys", "Be brief.", "--chat-template-kwargs", '{"nothing": 1}', module=FAKE)
    assert done.stderr.decode().splitlines() == [
        "localspec: this chat template never looks at nothing (--chat-template-kwargs)",
        HARMLESS,
    ]


def _answer(stdout: bytes, form: tuple[str, ...]) -> str:
    if form == ("--json",):
        return str(json.loads(stdout)["text"])
    if form == ("--jsonl",):
        events = map(json.loads, stdout.splitlines())
        return "".join(event["text"] for event in events if event["event"] == "tokens")
    return stdout.decode()


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [(("--grammar", 'root ::= "ab" "c"+ "."', "--min-tokens", "4"), None), (("-j", '{"const": null}'), "null")],
)
def test_an_answer_by_a_grammar(arguments: tuple[str, ...], wanted: str | None) -> None:
    done = run(
        "complete", "-m", "any.gguf", "-s", "3", "-p", "abc", *arguments, "-n", "40", module="tests.cli.fake_main"
    )
    assert done.returncode == 0, done
    text = done.stdout.decode()
    assert re.fullmatch(r"abc+\.", text) if wanted is None else text.strip() == wanted
