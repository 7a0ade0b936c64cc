"""The full screen at a terminal: how it ends, and what is kept then."""

from __future__ import annotations

import json
import os
import re
import resource
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
ALTERNATE_SCREEN, CURSOR, BRACKETED_PASTE, FOCUS = b"1049", b"25", b"2004", b"1004"
MOUSE = (b"1000", b"1003", b"1006", b"1015")
IN, OUT = b"\x1b[?1049h", b"\x1b[?1049l"
#: Pastes are marked from here on, and keys wait.
MARKS = b"\x1b[?2004h"


def starting(folder: Path, *arguments: str, model: str = "fake.gguf", module: str = FAKE, **more: str) -> Terminal:
    """The screen, from the first moment of its program on; ``more`` goes to the environment."""
    places = dict.fromkeys(("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"), str(folder))
    env = {**places, "TMPDIR": str(folder), "TEXTUAL_ANIMATIONS": "none", **more}
    given = arguments or ("-n", "5", "--ignore-eos")
    return Terminal("chat", "--tui", "-m", model, "--temp", "0", *given, module=module, env=env)


@contextmanager
def screen(
    folder: Path, *arguments: str, model: str = "fake.gguf", module: str = FAKE, **more: str
) -> Iterator[Terminal]:
    """The same when a model is loaded."""
    with starting(folder, *arguments, model=model, module=module, **more) as terminal:
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


def given_back(terminal: Terminal) -> bool:
    """Whether the terminal is as it was: its line, and what was switched on."""
    switched: dict[bytes, bytes] = {}
    for modes, way in re.findall(rb"\x1b\[\?([\d;]+)([hl])", terminal.written):
        switched.update(dict.fromkeys(modes.split(b";"), way))
    off = (ALTERNATE_SCREEN, *MOUSE, BRACKETED_PASTE, FOCUS)
    keys = re.findall(rb"\x1b\[([<>])\d*u", terminal.written)
    return (
        [switched.get(mode) for mode in off] == [b"l"] * len(off)
        and switched[CURSOR] == b"h"
        and keys.count(b"<") == keys.count(b">")
        and terminal.modes() == terminal.untouched
    )


def until_kept(folder: Path, draft: str) -> None:
    """Until that is what was typed and not sent."""
    deadline = monotonic() + 30
    while saved(folder).draft != draft:
        assert monotonic() < deadline, saved(folder).draft[:200]
        sleep(0.05)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_signals_end_it_and_nothing_is_lost(tmp_path: Path, number: int, code: int) -> None:
    with screen(tmp_path, "-n", "-1", "--ignore-eos", "--spec", "off") as terminal:
        terminal.send(b"hello\r")
        terminal.until(b"answering")
        terminal.send(b"half a thought")
        until_kept(tmp_path, "half a thought")
        (child,) = engines(terminal.process.pid)
        os.kill(terminal.process.pid, number)
        ended, rest = terminal.end()
        assert (ended, OUT in rest) == (code, True)
        assert given_back(terminal)
    assert not Path(f"/proc/{child}").exists()
    (question, answer) = kept(tmp_path)
    assert question == ("user", "hello")
    assert answer[1]
    assert saved(tmp_path).draft == "half a thought"


def test_a_crash_gives_back_the_terminal_and_keeps_what_was_typed(tmp_path: Path) -> None:
    with screen(tmp_path, "-n", "5", "--ignore-eos", module="tests.tui.crashing_main") as terminal:
        terminal.send(b"hello\r")
        terminal.until(b"5 tok")
        terminal.send(b"half a thought\x06")  # ctrl+f
        ended, rest = terminal.end()
        assert (ended, OUT in rest) == (1, True)
        assert b"a fault of ours" in rest
        assert given_back(terminal)
    assert saved(tmp_path).draft == "half a thought"
    assert json.loads((tmp_path / "localspec" / "history").read_text().splitlines()[-1]) == "half a thought"
    assert [role for role, _ in kept(tmp_path)] == ["user", "assistant"]


def test_a_terminal_that_goes_away_ends_it_and_nothing_is_lost(tmp_path: Path) -> None:
    with screen(tmp_path, "-n", "-1", "--ignore-eos", "--spec", "off") as terminal:
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
        until_kept(tmp_path, "half a thought")
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


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGILL])
def test_an_engine_that_dies_leaves_a_screen_that_works(tmp_path: Path, number: signal.Signals) -> None:
    with screen(tmp_path, "-n", "150", "--ignore-eos", "--spec", "off") as terminal:
        terminal.send(b"hello\r")
        terminal.until(b"answering")
        terminal.send(b"half a thought")
        until_kept(tmp_path, "half a thought")
        (child,) = engines(terminal.process.pid)
        os.kill(child, number)
        terminal.until(number.name.encode())
        assert [role for role, _ in kept(tmp_path)] == ["user", "assistant"]  # what had come
        terminal.send(b"\x1b[15~")  # F5
        terminal.until(b"ready")
        terminal.send(b"\r")
        terminal.until(b"150 tok")
        terminal.send(b"\x11")
        assert terminal.end()[0] == 0
    assert [text for role, text in kept(tmp_path) if role == "user"] == ["hello", "half a thought"]


def test_a_locale_that_is_not_utf_8(tmp_path: Path) -> None:
    ascii_only = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    with screen(tmp_path, "-n", "5", "--ignore-eos", **ascii_only) as terminal:
        terminal.send("grün\r".encode())
        terminal.until(b"5 tok")
        assert "grün".encode() in terminal.written
        assert "│".encode() in terminal.written
        assert b"\\u2" not in terminal.written
        terminal.send(b"\x11")
        assert terminal.end()[0] == 0
    assert kept(tmp_path)[0][1] == "grün"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_top_gives_back_the_terminal(number: int, code: int) -> None:
    with Terminal("top", "--mock", env={"TEXTUAL_ANIMATIONS": "none"}) as terminal:
        terminal.until(b"depth 1")
        os.kill(terminal.process.pid, number)
        assert terminal.end()[0] == code
        assert given_back(terminal)


def test_native_code_does_not_write_on_the_screen(tmp_path: Path) -> None:
    with screen(tmp_path, "-n", "5", "--ignore-eos", model="noisy.gguf") as terminal:
        terminal.send(b"hello\r")
        terminal.until(b"5 tok")
        terminal.send(b"/model noisy-too.gguf\r")
        terminal.until(b"context 512")
        terminal.send(b"\x11")
        assert terminal.end()[0] == 0
        assert b"native code" not in terminal.written


@pytest.mark.parametrize(("count", "ending"), [(3, "\n"), (200, "\r\n"), (20_000, "\r")])
def test_a_paste_is_one_message_whatever_is_in_it(tmp_path: Path, count: int, ending: str) -> None:
    pasted = [f"line {number}\tof \x1b[31mit" for number in range(count)]
    with screen(tmp_path, "-n", "-1", "--ignore-eos", "--spec", "off") as terminal:
        terminal.send(b"hello\r")
        terminal.until(b"answering")
        data = b"\x1b[200~" + "".join(f"{line}{ending}" for line in pasted).encode() + b"\x1b[201~"
        writer = threading.Thread(target=terminal.send, args=(data,))
        writer.start()
        terminal.until(b"line 2" if count < 10 else f"[pasted {count} lines #1]".encode())
        writer.join()
        message = "".join(f"{line}\n" for line in pasted)
        until_kept(tmp_path, message)
        assert len(kept(tmp_path)) == 1  # nothing was sent
        terminal.send(b"\r")
        terminal.until(b"waits: line 0")
        os.kill(terminal.process.pid, signal.SIGTERM)
        assert terminal.end()[0] == 143
        assert b"\x1b[31mit" not in terminal.written
    assert saved(tmp_path).draft == message
    assert [text for role, text in kept(tmp_path) if role == "user"] == ["hello"]


def test_a_full_disk_costs_nothing(tmp_path: Path) -> None:
    with screen(tmp_path, "-n", "5", "--ignore-eos") as terminal:
        terminal.send(b"hello\r")
        terminal.until(b"5 tok")
        pid = terminal.process.pid
        unlimited = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (1024, unlimited[1]))
        terminal.send(b"again\r")
        terminal.until(b"memory")  # where it is kept
        terminal.send(b"half a thought")
        resource.prlimit(pid, resource.RLIMIT_FSIZE, unlimited)
        terminal.send(b"!")
        until_kept(tmp_path, "half a thought!")
        terminal.process.kill()
        terminal.process.wait()
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


def test_what_cannot_be_saved_where_it_belongs_is_gone_on_with_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "localspec" / "sessions.db").mkdir(parents=True)
    with screen(tmp_path, "-n", "5", "--ignore-eos") as terminal:
        terminal.send(b"hello\r")
        terminal.until(b"as soon as")  # it is kept in memory, and saved as soon as that works
        terminal.send(b"half a thought\x11")
        code, rest = terminal.end()
    assert code == 0
    assert b"the conversation is saved" not in rest
    (place,) = re.findall(rb"XDG_DATA_HOME=(\S+)", rest)
    (question, answer) = kept(Path(place.decode()))
    assert question == ("user", "hello")
    assert answer[1]
    assert saved(Path(place.decode())).draft == "half a thought"


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
