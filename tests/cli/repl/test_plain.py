"""The chat over pipes, and what the simple terminal makes of lines."""

from __future__ import annotations

import io
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from localspec.cli.diagnostics import Ending
from localspec.cli.output import Output
from localspec.cli.repl import plain
from localspec.cli.repl.keyboard import Keyboard
from localspec.cli.repl.plain import PlainTerminal
from localspec.talk.front import LineCleared
from localspec.talk.history import History
from tests.cli.support import run

FAKE = "tests.cli.repl.fake_main"
CHAT = ("chat", "--simple-io", "-m", "fake.gguf", "-s", "3", "-n", "5", "--ignore-eos")


def read_all(monkeypatch: pytest.MonkeyPatch, typed: bytes, *, multiline: bool = False) -> list[str]:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed)))
    terminal = PlainTerminal(Output(), Keyboard(None), History(None), multiline=multiline)
    found = []
    while (text := terminal.read()) is not None:
        found.append(text)
    return found


@pytest.mark.parametrize(
    ("typed", "messages"),
    [
        (b"a\nb\n", ["a", "b"]),
        (b"a\r\nb", ["a", "b"]),
        (b"a\\\nb\\\nc\nd\n", ["a\nb\nc", "d"]),
        (b'"""\na\n\nb\n"""\nc\n', ["a\n\nb", "c"]),
        (b'"""a\nb"""\nc\n', ["a\nb", "c"]),
        (b'"""a"""\nb\n', ["a", "b"]),
        (b'"""a\nb\n', ["a\nb"]),
        (b"\n/exit\n", ["", "/exit"]),
        (b"ab\xff\ncd\n", ["cd"]),
        ("é😀\n".encode(), ["é😀"]),
        (b"", []),
    ],
)
def test_lines(monkeypatch: pytest.MonkeyPatch, typed: bytes, messages: list[str]) -> None:
    assert read_all(monkeypatch, typed) == messages


@pytest.mark.parametrize(
    ("typed", "messages"),
    [
        (b"a\nb/\nc\\\n/ctx\nd\n", ["a\nb", "c", "/ctx", "d"]),
        (b"a\n\nb\n/\n", ["a\n\nb\n"]),
    ],
)
def test_multiline(monkeypatch: pytest.MonkeyPatch, typed: bytes, messages: list[str]) -> None:
    assert read_all(monkeypatch, typed, multiline=True) == messages


def test_a_conversation_over_pipes_writes_answers_and_nothing_else_to_stdout() -> None:
    done = run(*CHAT, module=FAKE, stdin=b"abc\n/stats\n/bogus\ndef\n/exit\nnever\n")
    assert done.returncode == 0
    first, second = (run(*CHAT[:1], *CHAT[2:], module=FAKE, stdin=text).stdout for text in (b"abc", b"abc"))
    assert first == second
    assert done.stdout.startswith(first)
    assert len(done.stdout) > len(first)
    assert done.stderr.count(b" tok/s") >= 2
    assert b"no command /bogus" in done.stderr
    assert b"\x1b" not in done.stdout + done.stderr


def test_thinking_goes_to_stderr_where_stdout_is_no_terminal() -> None:
    done = run("chat", "-m", "thinks.gguf", "-s", "3", module=FAKE, stdin=b"abc")
    assert done.stdout == b"yes.\n"
    assert b"thinking: let me \xef\xbf\xbd[31m see\n" in done.stderr


def test_what_a_grammar_bounds_is_all_answer() -> None:
    asked = ("chat", "-m", "thinks.gguf", "--no-show-timings", "--grammar", 'root ::= "<think>no"')
    for mode in ("auto", "off"):
        done = run(*asked, "--reasoning", mode, module=FAKE, stdin=b"abc")
        assert (done.stdout, done.stderr) == (b"<think>no\n", b"")


def test_no_timings() -> None:
    done = run("chat", "-m", "thinks.gguf", "--no-show-timings", "--reasoning", "off", module=FAKE, stdin=b"abc")
    assert (done.stdout, done.stderr) == (b"yes.\n", b"")


def test_a_model_that_does_not_load_gives_way_to_the_one_before(tmp_path: Path) -> None:
    lines = [
        "abc",
        f"/model {tmp_path}/missing.gguf",
        f"/model {tmp_path}/broken.gguf",
        f"/model {tmp_path}/base.gguf",
        f"/draft {tmp_path}/broken-draft.gguf",
        "/ctx",
        "def",
        f"/model {tmp_path}/other.gguf",
        "/set ctx-size 400",
        "ghi",
        "/ctx",
    ]
    done = run(*CHAT, module=FAKE, stdin="\n".join(lines).encode())
    said = done.stderr.decode()
    assert done.returncode == 0
    assert "missing.gguf does not exist. Check the path." in said
    assert said.count("is damaged. Download it again.") == 2
    assert "has no chat template" in said
    assert "model other.gguf" in said
    assert said.count("· cut at -n 5") == 3
    assert "1 exchange\n" in said
    assert "3 exchanges\n" in said


def test_what_does_not_fit_is_said_and_the_chat_goes_on() -> None:
    question = "q" * 150
    lines = [question] * 5 + ["x" * 600, "abc", "/ctx"]
    done = run(*CHAT, module=FAKE, stdin="\n".join(lines).encode())
    said = done.stderr.decode()
    assert done.returncode == 0
    assert "no longer fit" in said
    assert "left out (" in said
    assert "question has 60" in said
    assert "6 exchanges" in said
    assert done.stdout.count(b"\n") >= 6


def test_reverse_prompts_and_the_end_of_the_context() -> None:
    done = run("chat", "-m", "fake.gguf", "-s", "3", "--ignore-eos", "-r", "CC", "-l", "30+5", module=FAKE, stdin=b"ab")
    assert done.returncode == 0
    assert b"CC" not in done.stdout
    full = run("chat", "-m", "thinks.gguf", "-c", "99", "--ignore-eos", "-l", "0-inf", module=FAKE, stdin=b"ab")
    assert b"context full" in full.stderr


def test_system_message_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a system message ü.txt"
    path.write_text("be brief\n")
    done = run(*CHAT, "-sysf", str(path), module=FAKE, stdin=b"/system\n")
    assert b"be brief\n" in done.stderr


def test_a_message_from_the_command_line_is_never_a_command() -> None:
    done = run(*CHAT, "-p", "/exit", module=FAKE, stdin=b"/edit\nx\n/ctx\n")
    assert done.returncode == 0
    assert b"\n/exit\n" in b"\n" + done.stderr.split(b"> ")[1]
    assert b"not read" not in done.stderr
    assert b"1 exchange\n" in done.stderr


@pytest.mark.parametrize("more", [(), ("--simple-io",)])
def test_single_turn(more: tuple[str, ...]) -> None:
    done = run(
        "chat", "-m", "fake.gguf", "-s", "3", "-n", "5", "--ignore-eos", "-st", *more, module=FAKE, stdin=b"abc\n"
    )
    assert (done.returncode, done.stdout != b"") == (0, True)
    assert done.stderr.count(b" tok/s") == 1


@pytest.mark.parametrize("ending", [KeyboardInterrupt, Ending(143)])
def test_lines_of_a_message_that_breaks_off_are_in_the_history(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ending: BaseException | type[BaseException]
) -> None:
    lines: list[object] = [b'"""a\n', b"b\n", ending]

    class Typed:
        def readline(self) -> bytes:
            line = lines.pop(0)
            if not isinstance(line, bytes):
                raise line  # type: ignore[misc]
            return line

    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=Typed(), isatty=lambda: False))
    terminal = PlainTerminal(Output(), Keyboard(None), History(tmp_path / "history"), multiline=False)
    with pytest.raises(LineCleared if ending is KeyboardInterrupt else Ending):
        terminal.read()
    assert History(tmp_path / "history").entries() == ['"""a\nb']


@pytest.mark.parametrize("at_terminal", [True, False])
def test_a_program_at_the_other_end_of_a_pipe_mentions_no_files(
    monkeypatch: pytest.MonkeyPatch, *, at_terminal: bool
) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(b"see @file\n"))
    monkeypatch.setattr(stdin, "isatty", lambda: at_terminal, raising=False)
    monkeypatch.setattr(sys, "stdin", stdin)
    monkeypatch.setattr(plain, "controls_are_shown", nullcontext)
    terminal = PlainTerminal(Output(), Keyboard(None), History(None), multiline=False)
    assert terminal.read() == "see @file"
    assert terminal.typed == ("see @file" if at_terminal else "")
