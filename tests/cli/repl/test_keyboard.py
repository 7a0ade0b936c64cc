"""Keys while no prompt is open: none is left in the terminal, however many; a paste stays one."""

from __future__ import annotations

import os
import pty
import select
import signal
import time
import tty
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.cli.repl.keyboard import BEGIN, END, Kept, Keyboard
from localspec.talk.history import History
from tests.cli.support import TAKEN, Terminal, plain

FAKE = "tests.cli.repl.fake_main"
CHAT = ("chat", "--no-tui", "-s", "3", "-n", "300", "--ignore-eos")
LINES = [f"line {n} with a few words, so that it is as long as a line of text: é" for n in range(200)]
PASTE = BEGIN + "\r".join(LINES).encode() + END


def in_paste(typed: bytes) -> bool:
    return typed.rfind(BEGIN) > typed.rfind(END)


@given(st.lists(st.sampled_from([b"abc\r", BEGIN, END, BEGIN[:3], BEGIN[3:]]), max_size=12), st.integers(1, 40))
def test_what_is_dropped_leaves_no_half_paste(parts: list[bytes], most: int) -> None:
    kept, whole = Kept(most), b"".join(parts)
    for part in parts:
        kept.add(part)
    assert kept.in_paste == in_paste(whole)
    assert kept.lost == max(len(whole) - most, 0)
    given_out = kept.take()
    assert given_out[:most] == whole[:most]
    assert in_paste(given_out) == in_paste(whole)
    assert kept.take() == b""


def test_lines_of_a_simple_terminal_are_given_one_by_one() -> None:
    kept = Kept()
    kept.add(b"one\ntw")
    kept.add(b"o\n")
    assert [kept.take_line() for _ in range(3)] == [b"one\n", b"two\n", b""]


def test_a_keyboard_reads_until_somebody_else_does() -> None:
    ours, line = pty.openpty()
    tty.setraw(line)
    keyboard = Keyboard(line)
    try:
        os.write(ours, PASTE)
        wait_until(lambda: not waits(line))
        with keyboard.rests():
            assert keyboard.take() == PASTE
            os.write(ours, b"abc")
            assert waits(line, 30)
            assert os.read(line, 10) == b"abc"
        os.write(ours, b"left")
    finally:
        keyboard.close()
    assert not waits(line)
    os.close(line)
    os.close(ours)


def waits(line: int, seconds: float = 0) -> bool:
    return bool(select.select([line], [], [], seconds)[0])


def wait_until(done: Callable[[], bool]) -> None:
    for _ in range(3000):
        if done():
            return
        time.sleep(0.01)
    pytest.fail("it never came true")


def chat(tmp_path: Path, model: str = "slow-large.gguf", *more: str, term: str = "xterm") -> Terminal:
    env = {"XDG_STATE_HOME": str(tmp_path), "TERM": term}
    return Terminal(*CHAT, "-m", model, *more, module=FAKE, env=env)


def messages(tmp_path: Path) -> list[str]:
    (file,) = tmp_path.rglob("history")
    return History(file).entries()


def asked(terminal: Terminal) -> None:
    terminal.prompt()
    terminal.send(b"abc\r")
    terminal.until(TAKEN)
    terminal.until(b"k")


def leave(terminal: Terminal) -> None:
    """Stops the answer and goes."""
    terminal.send(b"\x03")
    terminal.prompt()
    terminal.send(b"\x04")
    assert terminal.end()[0] == 0


@pytest.mark.parametrize("cut", [len(PASTE), 7000, 3])
def test_ctrl_c_works_in_the_middle_of_a_paste_and_makes_one_draft_of_it(tmp_path: Path, cut: int) -> None:
    with chat(tmp_path) as terminal:
        asked(terminal)
        terminal.send(PASTE[:cut])
        terminal.send(b"\x03")
        assert "stopped" in plain(terminal.prompt())
        terminal.send(PASTE[cut:])
        terminal.until(b"[pasted 200 lines]")
        terminal.send(b"x\x03")
        terminal.prompt()
        terminal.send(b"\x04")
        assert terminal.end()[0] == 0
    assert messages(tmp_path) == ["abc", "\n".join(LINES) + "x"]  # what is given up is kept there


def test_a_paste_during_an_answer_is_one_message_after_it(tmp_path: Path) -> None:
    with chat(tmp_path, "slow-large.gguf", "-n", "40") as terminal:
        asked(terminal)
        terminal.send(PASTE)
        terminal.send(b"\r")
        assert "cut at -n 40" in plain(terminal.prompt())
        terminal.until(TAKEN)
        leave(terminal)
    assert messages(tmp_path) == ["abc", "\n".join(LINES)]


def test_a_paste_while_the_model_loads_is_one_message(tmp_path: Path) -> None:
    with chat(tmp_path, "lazy.gguf") as terminal:
        terminal.until(b"\x1b[?2004h")
        terminal.send(PASTE)
        terminal.prompt()
        terminal.until(b"[pasted 200 lines]")
        terminal.send(b"\r")
        terminal.until(TAKEN)
        leave(terminal)
    assert messages(tmp_path) == ["\n".join(LINES)]


@pytest.mark.parametrize("end", ["/exit", "SIGTERM"])
def test_nothing_is_left_to_the_shell(tmp_path: Path, end: str) -> None:
    with chat(tmp_path) as terminal:
        shell = os.open(terminal.name, os.O_RDWR | os.O_NOCTTY)
        before = terminal.modes()
        if end == "/exit":
            terminal.prompt()
            terminal.send(b"/exit\r" + PASTE)
            terminal.until(TAKEN)
        else:
            asked(terminal)
            terminal.send(PASTE[:9000])
            terminal.process.send_signal(signal.SIGTERM)
            terminal.send(PASTE[9000:])
        assert b"\x1b[?2004h" not in terminal.until(b"\x1b[?2004l").removeprefix(b"\x1b[?2004h")
        assert terminal.process.wait(30) == (0 if end == "/exit" else 143)
        assert terminal.modes() == before
        tty.setcbreak(shell)
        assert not waits(shell, 0.1)
        os.close(shell)


def test_lines_pasted_into_a_simple_terminal_leave_room_for_ctrl_c(tmp_path: Path) -> None:
    with chat(tmp_path, term="dumb") as terminal:
        terminal.until(b"> ")
        terminal.send(b"abc\n")
        terminal.until(b"k")
        terminal.send(b"\n".join(line.encode() for line in LINES) + b"\n")
        terminal.send(b"\x03")
        terminal.until(b"is not sent: 200 lines")
        terminal.until(b"> ")
        terminal.send(b"\x04")
        assert terminal.end()[0] == 0


def test_lines_typed_into_a_simple_terminal_are_sent_one_by_one(tmp_path: Path) -> None:
    with chat(tmp_path, "large.gguf", "-n", "5", term="dumb") as terminal:
        terminal.until(b"> ")
        terminal.send(b"abc\ndef\n/ctx\n\x04")
        terminal.until(b", 2 exchanges")
        assert terminal.end()[0] == 0
