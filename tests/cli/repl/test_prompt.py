"""Keys at a real terminal: messages of several lines, pasted text, history, completion, editor, clipboard."""

from __future__ import annotations

import base64
import signal
from pathlib import Path

import pytest

from tests.cli.support import TAKEN, Terminal, plain

FAKE = "tests.cli.repl.fake_main"
CHAT = ("chat", "--no-tui", "-m", "large.gguf", "-s", "3", "-n", "5", "--ignore-eos")
PASTE, PASTED = b"\x1b[200~", b"\x1b[201~"


def chat(tmp_path: Path, *more: str, model: str = "large.gguf", env: dict[str, str] | None = None) -> Terminal:
    here = {"XDG_STATE_HOME": str(tmp_path), "NO_COLOR": "", "EDITOR": "", "VISUAL": ""}
    return Terminal(*CHAT, "-m", model, *more, module=FAKE, env={**here, **(env or {})})


def send(terminal: Terminal, keys: bytes) -> str:
    """Keys that end in a line taken; what is on the screen after it, up to the next prompt."""
    terminal.send(keys)
    terminal.until(TAKEN)
    return plain(terminal.prompt())


def size(terminal: Terminal) -> tuple[int, str]:
    """Tokens and exchanges of the conversation, as /ctx has them."""
    said = send(terminal, b"/ctx\r").split("] ")[1]
    tokens, _, rest = said.partition("/")
    return int(tokens), rest.partition(", ")[2].strip()


TWO_LINES = (
    b"ab\x1b\rcd\r",  # alt-enter
    b"ab\x0acd\r",  # ctrl-j
    b"ab\\\rcd\r",
    b'"""ab\rcd"""\r',
    b'"""\rab\rcd\r"""\r',
    PASTE + b"ab\r\ncd" + PASTED + b"\r",
)


def test_two_lines_are_one_message(tmp_path: Path) -> None:
    with chat(tmp_path) as terminal:
        terminal.prompt()
        for keys in TWO_LINES:
            assert "5 tok" in send(terminal, keys)
            tokens, exchanges = size(terminal)
            assert exchanges == "1 exchange"
            assert len("ab\ncd\n") + 5 <= tokens <= len("ab\ncd\n") + 20
            send(terminal, b"/new\r")
        terminal.send(b"\x04")
        assert terminal.end()[0] == 0


def test_a_paste_of_300_lines_is_one_message(tmp_path: Path) -> None:
    lines = [f"line {n} \\" for n in range(300)]  # backslashes of its own mean nothing
    with chat(tmp_path) as terminal:
        terminal.prompt()
        text = "\n".join(lines)
        terminal.send(PASTE + text.encode() + PASTED)
        terminal.until(b"[pasted 300 lines]")
        answered = send(terminal, b"x\r")
        assert "5 tok" in answered
        assert "299" not in answered
        tokens, exchanges = size(terminal)
        assert exchanges == "1 exchange"
        assert tokens >= len(text)
        terminal.send(b"/edit\r")
        terminal.until(b"line 299 \\x")
        terminal.send(b"\x03")
        terminal.until(b"nothing was changed")
        terminal.prompt()
        terminal.send(b"\x04")
        assert terminal.end()[0] == 0


def test_a_folded_paste_is_one_sign_among_others(tmp_path: Path) -> None:
    """It is deleted by one key, cut and put back, brought back from the history, and the cursor moves around it."""
    with chat(tmp_path) as terminal:
        terminal.prompt()
        terminal.send(PASTE + b"a\n" * 40 + PASTED + b"b" + PASTE + b"c" * 2000 + PASTED)
        terminal.until(b"[pasted 40 lines]b[pasted 2000 characters]")
        terminal.send(b"\x7f\x01z\x05y")  # rubbed out, start of line, end of line
        terminal.until(b"z[pasted 40 lines]b")
        send(terminal, b"\r")
        asked = len("z" + "a\n" * 40 + "by\n")
        assert asked <= size(terminal)[0] <= asked + 10
        terminal.send(b"\x1b[A\x1b[A")
        terminal.until(b"z[pasted 40 lines]by")
        terminal.send(b"\x17\x19")  # cut and put back
        send(terminal, b"\r")
        assert 2 * asked <= size(terminal)[0] <= 2 * asked + 20
        terminal.send(b"\x04")
        assert terminal.end()[0] == 0
    (file,) = tmp_path.rglob("history")
    assert file.read_text().count("za\\na\\n") == 2  # each message, whole


def test_the_editor_gets_all_of_a_paste(tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nprintf "%s lines" "$(grep -c a "$1")" > "$1"\n')
    editor.chmod(0o755)
    with chat(tmp_path, env={"EDITOR": str(editor)}) as terminal:
        terminal.prompt()
        terminal.send(PASTE + b"a\n" * 40 + PASTED + b"\x07")
        terminal.until(b"40 lines")
        assert "5 tok" in send(terminal, b"\r")
        terminal.send(b"\x04")
        assert terminal.end()[0] == 0


def test_pasted_quotes_open_nothing(tmp_path: Path) -> None:
    with chat(tmp_path) as terminal:
        terminal.prompt()
        assert "5 tok" in send(terminal, PASTE + b'"""doc"""\ndef f(): pass' + PASTED + b"\r")
        terminal.send(b"\x04")
        assert terminal.end()[0] == 0


def test_with_multiline_input_enter_is_a_new_line(tmp_path: Path) -> None:
    with chat(tmp_path, "-mli") as terminal:
        terminal.prompt()
        for end, exchanges in ((b"/\r", "1 exchange"), (b"\\\r", "2 exchanges"), (b"\x04", "3 exchanges")):
            assert "5 tok" in send(terminal, b"ab\rcd" + end)
            assert size(terminal)[1] == exchanges  # a command needs no mark
        assert "enter sends" in send(terminal, b"/multiline\r")
        assert "5 tok" in send(terminal, b"ab\r")
        terminal.send(b"\x04")
        assert terminal.end()[0] == 0


def test_history_outlives_the_chat_and_is_private(tmp_path: Path) -> None:
    with chat(tmp_path) as terminal:
        terminal.prompt()
        send(terminal, b"first\x0aquestion\r")
        terminal.process.kill()  # it was written before the answer
    (file,) = tmp_path.rglob("history")
    assert file.stat().st_mode & 0o077 == 0
    with chat(tmp_path) as terminal:
        terminal.prompt()
        assert "5 tok" in send(terminal, b"\x1b[A\r")
        assert size(terminal)[0] >= len("first\nquestion\n")
        terminal.send(b"\x04")
        assert terminal.end()[0] == 0
    assert file.read_text().count("first") == 1


def test_sigterm_keeps_what_was_typed(tmp_path: Path) -> None:
    with chat(tmp_path) as terminal:
        terminal.prompt()
        terminal.send(b"half a question")
        terminal.until(b"question")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.end()[0] == 143
    (file,) = tmp_path.rglob("history")
    assert "half a question" in file.read_text()


def test_a_history_that_cannot_be_written_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "localspec").write_text("a file where the folder should be")
    with chat(tmp_path) as terminal:
        terminal.prompt()
        assert "5 tok" in send(terminal, b"abc\r")
        terminal.send(b"\x04")
        assert terminal.end()[0] == 0


def test_tab_completes_commands_and_files(tmp_path: Path) -> None:
    (tmp_path / "some file.txt").write_text("hello")
    with chat(tmp_path) as terminal:
        terminal.prompt()
        terminal.send(b"/und\t")
        terminal.until(b"o")
        assert "nothing to take back" in send(terminal, b"\r")
        terminal.send(f"/read {tmp_path}/so\t".encode())
        terminal.until(b"txt")  # the line is wrapped somewhere before
        assert "some file.txt: " in " ".join(send(terminal, b"\r").split())
        terminal.send(b"\x04")
        assert terminal.end()[0] == 0


@pytest.mark.parametrize("keys", [b"\x07", b"\x18\x05"])
def test_the_editor_changes_the_message(tmp_path: Path, keys: bytes) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nprintf "%s and /stats" "$(cat "$1")" > "$1"\n')
    editor.chmod(0o755)
    with chat(tmp_path, env={"EDITOR": str(editor)}) as terminal:
        terminal.prompt()
        terminal.send(b"abc" + keys)
        terminal.until(b"and /stats")
        assert "5 tok" in send(terminal, b"\r")
        terminal.send(b"\x04")
        assert terminal.end()[0] == 0


def test_edit_offers_the_old_question(tmp_path: Path) -> None:
    with chat(tmp_path) as terminal:
        terminal.prompt()
        send(terminal, b"abc\r")
        send(terminal, b"/edit\r")
        terminal.until(b"abc")
        assert "5 tok" in send(terminal, b"def\r")
        assert size(terminal)[1] == "1 exchange"
        terminal.send(b"\x04")
        assert terminal.end()[0] == 0


def test_copy_reaches_the_clipboard(tmp_path: Path) -> None:
    with chat(tmp_path, model="thinks.gguf") as terminal:
        terminal.prompt()
        send(terminal, b"abc\r")
        terminal.send(b"/copy\r")
        terminal.until(b"\x1b]52;c;")
        assert base64.b64decode(terminal.until(b"\x07")[:-1]).startswith(b"yes.")
        terminal.prompt()
        terminal.send(b"\x04")
        assert terminal.end()[0] == 0


@pytest.mark.parametrize(
    ("more", "env", "dimmed"),
    [
        ((), {}, True),
        ((), {"NO_COLOR": "1"}, False),
        (("-co", "off"), {}, False),
        (("-co", "on"), {"NO_COLOR": "1"}, True),
    ],
)
def test_thinking_stands_in_its_place(tmp_path: Path, more: tuple[str, ...], env: dict[str, str], dimmed: bool) -> None:
    with chat(tmp_path, *more, model="thinks.gguf", env=env) as terminal:
        terminal.prompt()
        terminal.send(b"abc\r")
        terminal.until(TAKEN)
        raw = terminal.prompt()
        terminal.send(b"\x04")
        assert terminal.end()[0] == 0
    assert "thinking: let me \ufffd[31m see\r\nyes." in plain(raw)
    assert (b"\x1b[2m" in raw) == dimmed


def test_thinking_can_be_hidden(tmp_path: Path) -> None:
    with chat(tmp_path, "--reasoning", "off", model="thinks.gguf") as terminal:
        terminal.prompt()
        shown = send(terminal, b"abc\r")
        assert "let me" not in shown
        assert "yes." in shown
        terminal.send(b"\x04")
        assert terminal.end()[0] == 0


@pytest.mark.parametrize(("more", "env"), [((), {"TERM": "dumb"}), (("--simple-io",), {})])
def test_simple_terminals_get_no_escape_sequence(tmp_path: Path, more: tuple[str, ...], env: dict[str, str]) -> None:
    with chat(tmp_path, *more, model="thinks.gguf", env=env) as terminal:
        seen = terminal.until(b"> ")
        terminal.send(b"abc\n")
        seen += terminal.until(b" tok")
        seen += terminal.until(b"> ")
        terminal.send(b"/copy\n")
        seen += terminal.until(b"no clipboard")
        seen += terminal.until(b"> ")
        terminal.send(b"\x03")
        seen += terminal.until(b"ctrl-c again, or ctrl-d, leaves")
        seen += terminal.until(b"> ")
        terminal.send(b"\x04")
        code, rest = terminal.end()
    assert code == 0
    assert b"\x1b" not in seen + rest
    assert b"yes." in seen


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGHUP])
def test_what_was_being_typed_when_the_end_came_is_in_the_history(tmp_path: Path, end: signal.Signals) -> None:
    with chat(tmp_path) as terminal:
        terminal.prompt()
        terminal.send(b"half a message")
        terminal.until(b"message")
        terminal.process.send_signal(end)
        assert terminal.end()[0] == (143 if end is signal.SIGTERM else -signal.SIGHUP)
    (file,) = tmp_path.rglob("history")
    assert file.read_text() == '"half a message"\n'


def test_pasted_colours_are_no_mouse(tmp_path: Path) -> None:
    with chat(tmp_path) as terminal:
        terminal.prompt()
        said = send(terminal, b"\x1b[31mabc\r")
        assert "5 tok" in said
        assert "xception" not in said
        terminal.send(b"\x04")
        assert terminal.end()[0] == 0


def test_a_line_shows_how_loading_goes(tmp_path: Path) -> None:
    with chat(tmp_path, model="lazy.gguf") as terminal:
        line = "loading lazy.gguf … 40 %".encode()
        terminal.until(line)
        assert b"\r    " in terminal.prompt()  # wiped
        terminal.send(b"/set ctx-size 400\r")
        terminal.until(line)
        terminal.until(b"loaded anew")
        terminal.prompt()
        terminal.send(b"/model other.gguf\r")
        terminal.until("loading other.gguf …".encode())
        terminal.until(b"model other.gguf")
        terminal.prompt()
        terminal.send(b"\x04")
        assert terminal.end()[0] == 0


def test_lines_typed_during_an_answer_come_one_by_one(tmp_path: Path) -> None:
    """Enter stays Enter, commands stay commands, and nothing is echoed into the answer."""
    with chat(tmp_path, model="slow.gguf") as terminal:
        before = terminal.modes()
        terminal.prompt()
        terminal.send(b"abc\r")
        terminal.until(TAKEN)
        terminal.send(b"/copy\r")
        terminal.send(b"/ctx\r")
        answered = plain(terminal.prompt())
        assert "5 tok" in answered
        assert "/copy" not in answered
        terminal.until(TAKEN)
        terminal.until(b"OSC 52")
        terminal.until(b"1 exchange")
        terminal.prompt()
        terminal.send(b"\x04")
        assert terminal.end()[0] == 0
        assert terminal.modes() == before
