"""Keys pressed while an answer comes, and what a ctrl-c makes of them."""

from __future__ import annotations

import os
import pty
import select
import signal
import sys
import termios
from pathlib import Path

import pytest

from localspec.cli.repl.typeahead import draft, keys_are_kept
from tests.cli.support import TAKEN, Terminal, plain

FAKE = "tests.cli.repl.fake_main"
CHAT = ("chat", "--no-tui", "-m", "slow.gguf", "-s", "3", "-n", "300", "--ignore-eos")


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        ("one\rtwo\r", "one\ntwo"),
        ("one\r\ntwo", "one\ntwo"),
        ("abx\x7fc\b\x7f\x7f\x7f\x7fd", "d"),
        ("a\x1b[Ab\x1b[1;5Cc\x1bOPd\x1b[200~e\rf\x1b[201~", "abcde\nf"),
        ("\x04\x15\r\r", ""),
        ("h\u00e9 \u6f22\t!", "h\u00e9 \u6f22\t!"),
        ("a\x1b", "a"),
        ("👩\u200d👧 \U0010fffd\u3000", "👩\u200d👧 \U0010fffd\u3000"),
    ],
)
def test_a_draft_is_what_the_keys_would_have_written(typed: str, text: str) -> None:
    assert draft(typed) == text


def chat(tmp_path: Path, *more: str, term: str = "xterm") -> Terminal:
    return Terminal(*CHAT, *more, module=FAKE, env={"XDG_STATE_HOME": str(tmp_path), "TERM": term})


def test_after_ctrl_c_lines_typed_ahead_are_a_draft(tmp_path: Path) -> None:
    """They are not sent, one of them takes no file along, and enter sends all of them at once."""
    with chat(tmp_path) as terminal:
        terminal.prompt()
        terminal.send(b"abc\r")
        terminal.until(TAKEN)
        terminal.until(b"k")
        terminal.send(b"first line\rsecond line\r")
        terminal.send(b"\x03")
        stopped = plain(terminal.prompt())
        assert "stopped" in stopped
        assert "^C" not in stopped
        assert "it waits at the prompt" in stopped
        assert "second line" in plain(terminal.until(b"second line"))
        terminal.send(b"\r")
        terminal.until(TAKEN)
        terminal.until(b"k")
        terminal.send(b"\x03")
        terminal.prompt()
        terminal.send(b"/ctx\r")
        terminal.until(b", 2 exchanges")
        terminal.prompt()
        terminal.send(b"/edit\r")
        assert "first line" in plain(terminal.until(b"second line"))
        terminal.process.kill()


def test_a_draft_has_what_the_prompt_had_read_already(tmp_path: Path) -> None:
    with chat(tmp_path) as terminal:
        terminal.prompt()
        terminal.send(b"abc\rnext one\r")  # one read for both
        terminal.until(TAKEN)
        terminal.until(b"k")
        terminal.send(b"\x03")
        assert "waits at the prompt" in plain(terminal.prompt())
        terminal.until(b"next one")
        terminal.process.kill()


@pytest.mark.parametrize("answering", [True, False])
def test_ctrl_z_gives_the_terminal_back_until_the_job_goes_on(tmp_path: Path, answering: bool) -> None:
    """Without a shell there is nobody to wake it: the system does not stop it then, and it goes on at once."""
    with chat(tmp_path) as terminal:
        terminal.prompt()
        if answering:
            terminal.send(b"abc\r")
            terminal.until(TAKEN)
            terminal.until(b"k")
        before = terminal.modes()
        terminal.process.send_signal(signal.SIGTSTP)
        terminal.until(b"\x1b[?2004l")
        terminal.until(b"\x1b[?2004h")
        assert terminal.modes() == before
        terminal.send(b"\x03")
        terminal.until(b"stopped" if answering else b"leaves")
        terminal.process.kill()


def test_a_simple_terminal_drops_lines_typed_ahead_and_says_how_many(tmp_path: Path) -> None:
    with chat(tmp_path, term="dumb") as terminal:
        before = terminal.modes()
        terminal.until(b"> ")
        assert local(terminal) & termios.ECHOCTL
        terminal.send(b"abc\n")
        terminal.until(b"k")
        assert not local(terminal) & termios.ECHOCTL
        terminal.send(b"one\ntwo\nhal")
        terminal.until(b"hal")
        terminal.send(b"\x03")
        stopped = terminal.until(b"> ").decode()
        assert "what was typed in the meantime is not sent: 2 lines" in stopped
        assert "^C" not in stopped
        terminal.send(b"/ctx\n")
        terminal.until(b", 1 exchange")
        terminal.until(b"> ")
        terminal.send(b"half a line\x03")
        terminal.until(b"leaves")
        terminal.until(b"> ")
        terminal.send(b"/ctx\n")  # nothing of the half line is before it
        terminal.until(b", 1 exchange")
        terminal.until(b"> ")
        terminal.send(b"\x04")
        assert terminal.end()[0] == 0
        assert terminal.modes() == before


def local(terminal: Terminal) -> int:
    flags = terminal.modes()[3]
    assert isinstance(flags, int)
    return flags


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        (b"\n", b""),
        (b"\n\nhello\n", b"hello\r"),
        (b"one\ntwo\n", b"one\ntwo\r"),
        (b"half a li", b"half a li"),
    ],
)
def test_what_is_typed_before_the_program_begins(
    typed: bytes, kept: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An impatient Enter is no first line of the next message: a command behind it would go to the model."""
    ours, line = pty.openpty()
    with (tmp_path / "screen").open("w") as screen, open(line, closefd=False) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        os.write(ours, typed.replace(b"\n", b"\r"))  # an Enter; the terminal makes a new line of it
        select.select([line], [], [], 0.5)
        with keys_are_kept(screen) as keyboard, keyboard.rests():
            assert keyboard.take() == kept
            os.write(ours, b"/ctx\r")
            assert keyboard.take() == b"/ctx\r"
    os.close(ours)
    os.close(line)


def test_an_enter_before_the_program_begins_changes_no_command(tmp_path: Path) -> None:
    with chat(tmp_path) as terminal:
        terminal.send(b"\r")
        terminal.prompt()
        terminal.send(b"/ctx\r")
        assert "0 exchanges" in plain(terminal.until(b"exchanges"))
