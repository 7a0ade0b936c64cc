"""The full screen at a terminal: how it ends, and what is kept then."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from time import monotonic, sleep

import pytest

from localspec.chat.store import Session, Store
from tests.cli.support import Terminal, error_line, run

FAKE = "tests.cli.repl.fake_main"
IN, OUT = b"\x1b[?1049h", b"\x1b[?1049l"
#: Pastes are marked from here on, and keys wait.
MARKS = b"\x1b[?2004h"


def starting(folder: Path, *arguments: str, model: str = "fake.gguf") -> Terminal:
    """The screen, from the first moment of its program on."""
    places = dict.fromkeys(("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"), str(folder))
    env = {**places, "TEXTUAL_ANIMATIONS": "none"}
    given = arguments or ("-n", "5", "--ignore-eos")
    return Terminal("chat", "--tui", "-m", model, "--temp", "0", *given, module=FAKE, env=env)


@contextmanager
def screen(folder: Path, *arguments: str, model: str = "fake.gguf") -> Iterator[Terminal]:
    """The same when a model is loaded."""
    with starting(folder, *arguments, model=model) as terminal:
        terminal.until(IN)
        terminal.until(b"ready")
        yield terminal


def engines(pid: int) -> list[int]:
    """Processes that any thread of ``pid`` has started and that live."""
    return [int(child) for file in Path(f"/proc/{pid}/task").glob("*/children") for child in file.read_text().split()]


def saved(folder: Path) -> Session:
    """The one conversation that was saved."""
    with closing(Store(folder / "localspec" / "sessions.db")) as store:
        (session,) = store.sessions()
    return session


def kept(folder: Path) -> list[tuple[str, str]]:
    """Its roles and texts."""
    session = saved(folder)
    with closing(Store(folder / "localspec" / "sessions.db")) as store:
        return [(one.role, one.content) for one in store.tree(session.id).path(session.leaf)]


def _last_written(folder: Path) -> str:
    """The newest entry of the history."""
    entry = json.loads((folder / "localspec" / "history").read_text().splitlines()[-1])
    assert isinstance(entry, str)
    return entry


def test_it_leaves_the_terminal_as_it_was_and_says_where_the_conversation_is(tmp_path: Path) -> None:
    with screen(tmp_path, "-n", "5", "--ignore-eos") as terminal:
        terminal.send(b"hello\r")
        terminal.until(b"5 tok")
        terminal.send(b"half a \x11")
        code, rest = terminal.end()
    assert code == 0
    assert OUT in rest
    assert b"the conversation is saved: localspec chat --resume goes on" in rest.split(OUT)[1]
    assert [role for role, _ in kept(tmp_path)] == ["user", "assistant"]
    assert _last_written(tmp_path) == "half a "


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_signals_end_it_and_nothing_is_lost(tmp_path: Path, number: int, code: int) -> None:
    with screen(tmp_path, "-n", "-1", "--ignore-eos") as terminal:
        drawn = terminal.modes()
        terminal.send(b"hello\r")
        terminal.until(b"answering")
        os.kill(terminal.process.pid, number)
        ended, rest = terminal.end()
        assert terminal.modes()[3] != drawn[3]  # the line echoes and edits again
    assert (ended, OUT in rest) == (code, True)
    (question, answer) = kept(tmp_path)
    assert question == ("user", "hello")
    assert answer[1]


def test_a_terminal_that_goes_away_ends_it_and_nothing_is_lost(tmp_path: Path) -> None:
    with screen(tmp_path, "-n", "-1", "--ignore-eos") as terminal:
        terminal.send(b"hello\r")
        terminal.until(b"answering")
        terminal.hang_up()
        assert terminal.process.wait(30) == 129
    assert kept(tmp_path)[0] == ("user", "hello")


def test_a_kill_loses_neither_what_was_said_nor_what_was_typed(tmp_path: Path) -> None:
    with screen(tmp_path, "-n", "5", "--ignore-eos") as terminal:
        terminal.send(b"hello\r")
        terminal.until(b"5 tok")
        terminal.send(b"half a thought")
        deadline = monotonic() + 30
        while saved(tmp_path).draft != "half a thought":
            assert monotonic() < deadline
            sleep(0.05)
        terminal.process.kill()
        terminal.process.wait()
    assert [role for role, _ in kept(tmp_path)] == ["user", "assistant"]
    with screen(tmp_path, "-n", "5", "--ignore-eos", "--resume") as terminal:
        terminal.send(b"\r")  # what was typed is there
        terminal.until(b"5 tok")
        terminal.send(b"\x11")
        assert terminal.end()[0] == 0
    assert [text for role, text in kept(tmp_path) if role == "user"] == ["hello", "half a thought"]
    assert saved(tmp_path).draft == ""


def test_an_engine_that_is_killed_leaves_a_screen_that_works(tmp_path: Path) -> None:
    with screen(tmp_path, "-n", "5", "--ignore-eos") as terminal:
        terminal.send(b"hello\r")
        terminal.until(b"5 tok")
        (child,) = engines(terminal.process.pid)
        os.kill(child, signal.SIGKILL)
        terminal.send(b"again\r")
        terminal.until(b"SIGKILL")
        terminal.send(b"\x1b[15~")  # F5
        terminal.until(b"ready")
        terminal.send(b"\r")  # the question came back
        terminal.until(b"5 tok")
        terminal.send(b"\x11")
        assert terminal.end()[0] == 0
    assert [text for role, text in kept(tmp_path) if role == "user"] == ["hello", "again"]


def test_an_engine_that_is_killed_while_it_waits_for_a_key_keeps_the_answer(tmp_path: Path) -> None:
    with screen(tmp_path, "-n", "5", "--ignore-eos") as terminal:
        terminal.send(b"\x1bt")
        terminal.until(b"step mode is on")
        terminal.send(b"hello\r")
        terminal.until(b"waits for a key")
        terminal.send(b"\x1bn")
        terminal.until(b"step 1: ")
        (child,) = engines(terminal.process.pid)
        os.kill(child, signal.SIGKILL)
        terminal.until(b"SIGKILL")
        terminal.send(b"\x1b[15~")  # F5
        terminal.until(b"ready")
        terminal.send(b"again\r")
        terminal.until(b"waits for a key")
        terminal.send(b"\x1br")
        terminal.until(b"5 tok")
        terminal.send(b"\x11")
        assert terminal.end()[0] == 0
    assert [text for role, text in kept(tmp_path) if role == "user"] == ["hello", "again"]
    assert [bool(text) for role, text in kept(tmp_path) if role == "assistant"] == [True, True]


def test_a_terminal_that_closes_while_an_answer_waits_for_a_key(tmp_path: Path) -> None:
    with screen(tmp_path, "-n", "5", "--ignore-eos") as terminal:
        terminal.send(b"\x1bthello\r")
        terminal.until(b"waits for a key")
        terminal.send(b"\x1bn")
        terminal.until(b"step 1: ")
        (child,) = engines(terminal.process.pid)
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.end()[0] == 143
    assert [bool(text) for role, text in kept(tmp_path) if role == "assistant"] == [True]
    assert not Path(f"/proc/{child}").exists()


def test_bytes_that_are_no_text_do_no_harm(tmp_path: Path) -> None:
    with screen(tmp_path, "-n", "5", "--ignore-eos") as terminal:
        terminal.send(b"\xff\xfe")
        terminal.send(b"hello\r")
        terminal.until(b"5 tok")
        terminal.send(b"\x11")
        assert terminal.end()[0] == 0
    assert kept(tmp_path)[0][1] == "��hello"


def test_what_is_typed_before_the_screen_is_there_is_asked(tmp_path: Path) -> None:
    """At once, when the terminal still edits lines: Enter sends, and the text before it is one message."""
    with starting(tmp_path) as terminal:
        terminal.send(b"one\ntwo ")
        terminal.send(b"words\r")
        terminal.until(b"5 tok")
        terminal.send(b"\x11")
        assert terminal.end()[0] == 0
    assert kept(tmp_path)[0] == ("user", "one\ntwo words")


def test_what_is_typed_and_not_sent_before_the_screen_is_there_stays_in_the_editor(tmp_path: Path) -> None:
    with starting(tmp_path) as terminal:
        terminal.send(b"half ")
        terminal.until(MARKS)  # keys wait from here on
        terminal.send("a th\u00f6ught".encode())
        terminal.until(b"ready")
        terminal.send(b", whole\r")
        terminal.until(b"5 tok")
        terminal.send(b"\x11")
        assert terminal.end()[0] == 0
    assert kept(tmp_path)[0] == ("user", "half a th\u00f6ught, whole")


def test_a_paste_before_the_screen_is_there_is_one_message(tmp_path: Path) -> None:
    paste = "".join(f"line {number}\n" for number in range(1000))  # more than a terminal's queue holds
    with starting(tmp_path) as terminal:
        terminal.until(MARKS)
        sent = threading.Thread(target=terminal.send, args=(f"\x1b[200~{paste}\x1b[201~".encode(),))
        sent.start()
        terminal.until(b"pasted 1000 lines")
        sent.join()
        terminal.send(b"\x11")
        assert terminal.end()[0] == 0
    assert _last_written(tmp_path) == paste


def test_the_line_is_as_it_was_when_the_screen_has_gone(tmp_path: Path) -> None:
    with starting(tmp_path) as terminal:
        before = terminal.modes()
        terminal.until(b"ready")
        assert terminal.modes() != before
        terminal.send(b"\x11")
        assert OUT in terminal.until(OUT)
        terminal.end()
        assert terminal.modes() == before


def test_without_a_terminal_it_is_refused() -> None:
    assert "--tui needs a terminal" in error_line(run("chat", "--tui", "-m", "fake.gguf", module=FAKE), 2)


def test_an_action_that_there_is_not_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[keys]\nhlep = "f8"\n')
    with Terminal("chat", "--tui", "-m", "fake.gguf", "--config", str(path), module=FAKE) as terminal:
        code, rest = terminal.end()
    assert code == 2
    assert b"[keys] has hlep, which is no action. Did you mean help?" in rest
