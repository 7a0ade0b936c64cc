"""``localspec chat`` at a terminal, and without one."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.cli.factories import BELL, BRACKETS, C1, ESCAPE
from tests.cli.support import FAKE, Terminal, children, run

CHAT = ("chat", "-m", "fake.gguf", "-s", "3", "-n", "20", "--ignore-eos")
LONG = ("chat", "-m", "fake.gguf", "-s", "3", "-n", "300", "--ignore-eos")


def chat(*arguments: str, stdout: int | None = None) -> Terminal:
    return Terminal(*(arguments or CHAT), module=FAKE, stdout=stdout)


def ask(terminal: Terminal, text: str) -> str:
    """Sends a line; what is on the screen after it, up to the next prompt."""
    terminal.send(text.encode() + b"\n")
    terminal.until(b"\r\n")
    return terminal.prompt().decode()


def leave(terminal: Terminal, keys: bytes = b"\x04") -> int:
    terminal.send(keys)
    return terminal.end()[0]


def engine_of(terminal: Terminal) -> int:
    (child,) = children(terminal.process.pid)
    return child


def test_two_turns_reuse_the_prefix() -> None:
    with chat() as terminal:
        greeting = terminal.prompt().decode()
        assert "guesses from ngram-simple · context 512" in greeting
        assert "reused" not in ask(terminal, "abc")
        assert "prompt tokens reused" in ask(terminal, "def")
        assert leave(terminal) == 0


def test_progress_is_gone_when_the_model_is_there() -> None:
    with chat() as terminal:
        seen = terminal.prompt().decode()
        assert leave(terminal) == 0
    shown = seen[: seen.index("FakeTarget") if "FakeTarget" in seen else seen.index("Slow")]
    assert shown.count("50%") == 1
    assert shown.rsplit("\r", 2)[1].strip() == ""


@pytest.mark.parametrize(("keys", "code"), [(b"\x04", 0), (b"/exit\n", 0), (b"/quit\n", 0)])
def test_ways_to_leave(keys: bytes, code: int) -> None:
    with chat() as terminal:
        terminal.prompt()
        assert leave(terminal, keys) == code


def test_ctrl_c_at_the_prompt_warns_once() -> None:
    """The answer may have ended a moment before the key came: the conversation is not lost for that."""
    with chat() as terminal:
        terminal.prompt()
        terminal.send(b"\x03")
        terminal.until(b"ctrl-d, leaves")
        time.sleep(0.3)
        assert leave(terminal, b"\x03") == 130


def test_ctrl_c_stops_an_answer_and_the_chat_goes_on() -> None:
    with chat(*LONG) as terminal:
        terminal.prompt()
        terminal.send(b"abc\n")
        terminal.until(b"\r\n")
        time.sleep(1)
        terminal.send(b"\x03")
        assert "· stopped" in terminal.prompt().decode()
        assert "prompt tokens reused" in ask_and_stop(terminal)
        assert leave(terminal) == 0


def ask_and_stop(terminal: Terminal) -> str:
    terminal.send(b"def\n")
    terminal.until(b"\r\n")
    time.sleep(0.5)
    terminal.send(b"\x03")
    return terminal.prompt().decode()


def test_a_dead_engine_is_replaced_and_the_conversation_kept() -> None:
    with chat(*LONG) as terminal:
        terminal.prompt()
        terminal.send(b"abc\n")
        terminal.until(b"\r\n")
        time.sleep(0.7)
        os.kill(engine_of(terminal), signal.SIGKILL)
        said = terminal.prompt().decode()
        assert "localspec: error: the engine process was killed by SIGKILL" in said
        assert "localspec: a new engine is running; the conversation so far is kept\r\n" in said
        after = ask_and_stop(terminal)
        assert "error" not in after
        assert "· stopped" in after
        assert leave(terminal) == 0


def test_nothing_of_the_model_steers_the_terminal() -> None:
    biases = [word for token in (ESCAPE, BELL, C1, BRACKETS) for word in ("-l", f"{token}+60")]
    with chat(*CHAT, *biases) as terminal:
        terminal.prompt()
        answer = ask(terminal, "abc")
        assert leave(terminal) == 0
    text = answer[: answer.index(" tok")]
    assert "[/b]" in text
    assert "[31m" in text
    assert not {"\x1b", "\x07", "\x9b"} & set(text)


def test_bytes_that_are_no_text_are_asked_for_again() -> None:
    with chat() as terminal:
        terminal.prompt()
        assert "that line is not UTF-8 text" in ask_raw(terminal, b"ab\xff\n")
        assert "not UTF-8" not in ask(terminal, "abc")
        assert leave(terminal) == 0


def ask_raw(terminal: Terminal, keys: bytes) -> str:
    terminal.send(keys)
    return terminal.prompt().decode(errors="replace")


def test_stdout_to_a_file_gets_the_answers_alone(tmp_path: Path) -> None:
    path = tmp_path / "answers"
    with path.open("wb") as file, chat(stdout=file.fileno()) as terminal:
        terminal.prompt()
        ask(terminal, "abc")
        assert leave(terminal) == 0
    piped = run(*CHAT, module=FAKE, stdin=b"abc")
    assert path.read_bytes() == piped.stdout


@pytest.mark.parametrize(("keys", "code"), [(b"abc\n", 0), (b"\x04", 0)])
def test_single_turn(keys: bytes, code: int) -> None:
    with chat(*CHAT, "-st") as terminal:
        terminal.prompt()
        assert leave(terminal, keys) == code


def test_piped_input_is_one_message() -> None:
    done = run(*CHAT, module=FAKE, stdin=b"abc\ndef")
    assert done.returncode == 0
    assert done.stdout.endswith(b"\n")
    assert len(done.stderr.splitlines()) == 1
    assert b"20 tok" in done.stderr
    assert done.stdout == run(*CHAT, "-p", "abc\ndef", module=FAKE).stdout


def test_the_first_message_may_be_given_at_the_start() -> None:
    with chat(*CHAT, "-p", "abc") as terminal:
        terminal.until(b"ctrl-d leaves")
        assert " tok" in terminal.prompt().decode()
        assert leave(terminal) == 0


def test_a_real_model_chats(smol: Path) -> None:
    done = run("chat", "-m", str(smol), "-t", "1", "--temp", "0", "-n", "4", stdin=b"Say hello.")
    assert done.returncode == 0
    assert done.stdout.strip()
