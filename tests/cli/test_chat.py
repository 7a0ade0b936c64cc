"""``localspec chat`` at a terminal, and without one."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from localspec.errors import ExitCode
from tests.cli.factories import BELL, BRACKETS, C1, ESCAPE
from tests.cli.support import FAKE, TAKEN, Terminal, children, error_line, plain, run, shell

CHAT = ("chat", "--no-tui", "-m", "fake.gguf", "-s", "3", "-n", "20", "--ignore-eos")
LONG = ("chat", "--no-tui", "-m", "fake.gguf", "-s", "3", "-n", "300", "--ignore-eos")


def chat(*arguments: str, stdout: int | None = None) -> Terminal:
    return Terminal(*(arguments or CHAT), module=FAKE, stdout=stdout)


def ask(terminal: Terminal, text: str) -> str:
    """Sends a line; what is on the screen after it, up to the next prompt."""
    terminal.send(text.encode() + b"\r")
    terminal.until(TAKEN)
    return plain(terminal.prompt())


def leave(terminal: Terminal, keys: bytes = b"\x04") -> int:
    terminal.send(keys)
    return terminal.end()[0]


def engine_of(terminal: Terminal) -> int:
    (child,) = children(terminal.process.pid)
    return child


def stop(terminal: Terminal, question: str) -> str:
    """Asks, and presses ctrl-c once a part of the answer is there."""
    terminal.send(question.encode() + b"\r")
    terminal.until(TAKEN)
    terminal.until(b"k")
    terminal.send(b"\x03")
    return plain(terminal.prompt())


def test_two_turns_reuse_the_prefix() -> None:
    with chat() as terminal:
        greeting = plain(terminal.prompt())
        assert "guesses from ngram-simple · context 512" in greeting
        assert max(map(len, greeting.replace("\r", "\n").splitlines())) <= 80
        assert "reused" not in ask(terminal, "abc")
        assert "prompt tokens reused" in ask(terminal, "def")
        assert leave(terminal) == 0


def test_progress_is_gone_when_the_model_is_there() -> None:
    with chat() as terminal:
        seen = terminal.prompt().decode()
        assert leave(terminal) == 0
    shown = seen[: seen.index("Slow")]
    assert shown.count("50 %") == 1
    assert plain(shown.rsplit("\r", 2)[1].encode()).strip() == ""


@pytest.mark.parametrize(("keys", "code"), [(b"\x04", 0), (b"/exit\r", 0), (b"/quit\r", 0)])
def test_ways_to_leave(keys: bytes, code: int) -> None:
    with chat() as terminal:
        before = terminal.modes()
        terminal.prompt()
        assert terminal.modes() != before
        assert leave(terminal, keys) == code
        assert terminal.modes() == before


def test_ctrl_c_at_the_prompt_warns_once() -> None:
    """The answer may have ended a moment before the key came: the conversation is not lost for that."""
    with chat() as terminal:
        terminal.prompt()
        terminal.send(b"\x03")
        assert "ctrl-c again, or ctrl-d, leaves" in plain(terminal.prompt())
        assert leave(terminal, b"\x03") == 130


def test_ctrl_c_clears_the_line_and_the_history_has_it() -> None:
    with chat() as terminal:
        terminal.prompt()
        terminal.send(b"abc\x03")
        assert "leaves" in plain(terminal.prompt())
        assert "20 tok" in ask(terminal, "\x1b[A")  # the key up
        assert leave(terminal) == 0


@pytest.mark.parametrize("at", ["prompt", "answer"])
def test_sigterm_gives_the_terminal_back(at: str) -> None:
    with chat(*LONG) as terminal:
        before = terminal.modes()
        terminal.prompt()
        if at == "answer":
            terminal.send(b"abc\r")
            terminal.until(b"kk")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.end()[0] == 143
        assert terminal.modes() == before


def test_ctrl_c_stops_an_answer_and_the_chat_goes_on() -> None:
    with chat(*LONG) as terminal:
        terminal.prompt()
        assert "· stopped" in stop(terminal, "abc")
        assert "prompt tokens reused" in stop(terminal, "def")
        assert ", 2 exchanges" in ask(terminal, "/ctx")
        assert leave(terminal) == 0


def test_a_dead_engine_is_replaced_and_the_conversation_kept() -> None:
    with chat(*LONG) as terminal:
        terminal.prompt()
        terminal.send(b"abc\r")
        terminal.until(b"kk")
        os.kill(engine_of(terminal), signal.SIGKILL)
        said = plain(terminal.prompt())
        assert "localspec: error: the engine process was killed by SIGKILL" in said
        assert "localspec: a new engine is running; the conversation so far is kept\r\n" in said
        after = stop(terminal, "def")
        assert "error" not in after
        assert "· stopped" in after
        assert leave(terminal) == 0


def test_nothing_of_the_model_steers_the_terminal() -> None:
    biases = [word for token in (ESCAPE, BELL, C1, BRACKETS) for word in ("-l", f"{token}+60")]
    with chat(*CHAT, *biases) as terminal:
        terminal.prompt()
        terminal.send(b"abc\r")
        terminal.until(TAKEN)
        answer = terminal.until(b" tok")
        terminal.prompt()
        assert leave(terminal) == 0
    text = answer.removeprefix(b"\x1b[?2004h").removesuffix(b"20 tok").removesuffix(b"\x1b[2m").decode()
    text = text.rpartition("\r")[0] + text.rpartition("\r")[2]
    assert "[/b]" in text
    assert "[31m" in text
    assert not {"\x1b", "\x07", "\x9b"} & set(text)


def test_bytes_that_are_no_text_are_asked_for_again() -> None:
    with chat() as terminal:
        terminal.prompt()
        terminal.send(b"ab\xff\r")
        terminal.until(TAKEN)
        assert "that line is not UTF-8 text" in plain(terminal.prompt())
        assert "not UTF-8" not in ask(terminal, "abc")
        assert leave(terminal) == 0


def test_stdout_to_a_file_gets_the_answers_alone(tmp_path: Path) -> None:
    path = tmp_path / "answers"
    with path.open("wb") as file, chat(stdout=file.fileno()) as terminal:
        terminal.prompt()
        ask(terminal, "abc")
        assert leave(terminal) == 0
    piped = run(*CHAT, module=FAKE, stdin=b"abc")
    assert path.read_bytes() == piped.stdout


@pytest.mark.parametrize(("keys", "code"), [(b"abc\r", 0), (b"\x04", 0)])
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


@pytest.mark.parametrize("text", [b"", b" \n\t"])
@pytest.mark.parametrize("more", [(), ("-p", "-"), ("-f", "-")])
def test_empty_input_is_a_usage_error_and_nothing_is_loaded(text: bytes, more: tuple[str, ...]) -> None:
    line = error_line(run(*CHAT, *more, module=FAKE, stdin=text), 2)
    assert "there is no terminal to chat at and standard input is empty. Use -p TEXT" in line


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("-m", "none.gguf"), "none.gguf does not exist. Check the path."),
        (("-md", "none.gguf"), "the draft model: none.gguf does not exist. Check the path."),
    ],
)
def test_a_path_that_leads_nowhere_is_named_before_empty_input(given: tuple[str, ...], says: str) -> None:
    assert says in error_line(run("chat", *given), ExitCode.MODEL)


@pytest.mark.parametrize("flag", ["-m", "-md"])
def test_a_path_that_leads_nowhere_opens_no_screen(flag: str) -> None:
    with Terminal("chat", flag, "none.gguf") as terminal:
        code, shown = terminal.end()
    assert code == ExitCode.MODEL
    assert b"none.gguf does not exist. Check the path." in shown
    assert b"\x1b[?1049h" not in shown


def test_an_empty_text_without_a_terminal_is_no_message() -> None:
    assert "no terminal to chat at and no message" in error_line(run(*CHAT, "-p", " ", module=FAKE, stdin=b""), 2)


def test_the_first_message_may_be_given_at_the_start() -> None:
    with chat(*CHAT, "-p", "abc") as terminal:
        terminal.until(b"ctrl-d leaves")
        assert " tok" in plain(terminal.prompt())
        assert leave(terminal) == 0


def test_an_empty_message_is_no_message() -> None:
    with chat() as terminal:
        terminal.prompt()
        assert ask(terminal, "").strip() == ""
        assert ask(terminal, "  ").strip() == ""
        assert "20 tok" in ask(terminal, "abc")
        assert leave(terminal) == 0


def test_a_closed_pipe_is_no_failure() -> None:
    done = shell('"$@" -p abc | head -c 3', *LONG, module=FAKE)
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(done.stdout) == 3


def test_answers_are_utf8_where_the_locale_is_not() -> None:
    ascii_only = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = run(*CHAT, "-l", f"{C1}+60", module=FAKE, stdin=b"abc", env=ascii_only)
    assert done.returncode == 0
    assert "\x9b" in done.stdout.decode()
    assert b"20 tok" in done.stderr


def test_a_real_model_chats(beginning: Path) -> None:
    done = run("chat", "-m", str(beginning), "-t", "1", "--temp", "0", "-n", "4", stdin=b"Say hello.")
    assert done.returncode == 0
    assert done.stdout.strip()
