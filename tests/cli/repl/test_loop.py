"""The loop in front of the chat: interrupts, and what an answer looks like on the way out."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from localspec.errors import ExitCode
from localspec.report import status_line
from localspec.talk.chat import Chat
from localspec.talk.front import Leave, LineCleared
from localspec.talk.turn import LeftOut, Turn
from localspec.types import Finished, SourceStats, SpecStats, Timings
from tests.cli.repl.support import chat, contents, engine, repl, typed

Said = pytest.CaptureFixture[str]


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def pressing(events: Turn, times: int) -> Turn:
    """The same events, with so many ctrl-c after the third."""
    for n, event in enumerate(events):
        if n == 3:
            for _ in range(times):
                interrupt()
        yield event


def test_the_first_ctrl_c_stops_and_the_second_leaves(capsys: Said) -> None:
    one = chat(n_predict=300)
    front = repl(one)
    assert front.turn(pressing(one.ask("abc"), 1)) == ExitCode.INTERRUPTED
    assert "· stopped" in capsys.readouterr().err
    assert typed(front).withdrawn == 1
    kept = contents(one)
    assert len(kept) == 2
    with pytest.raises(Leave) as leave:
        front.turn(pressing(one.ask("def"), 2))
    assert leave.value.code == ExitCode.INTERRUPTED
    assert typed(front).withdrawn == 2  # the shell does not get what was typed ahead
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize(
    ("presses", "code"),
    [
        ([KeyboardInterrupt(), KeyboardInterrupt()], 130),
        ([LineCleared(), KeyboardInterrupt()], 130),
        ([LineCleared(), LineCleared(), None], 0),
        ([KeyboardInterrupt(), "abc", KeyboardInterrupt(), None], 0),
        ([None], 0),
        (["abc", "/exit"], 0),
    ],
)
def test_ways_out_of_the_prompt(capsys: Said, presses: list[str | BaseException | None], code: int) -> None:
    front = repl(chat(), *(press for press in presses if press is not None))
    assert front.run(None) == code


def test_ctrl_c_in_a_command_comes_back_to_the_prompt(capsys: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    one = chat()

    def slow(_: Chat) -> int:
        interrupt()
        return 0

    monkeypatch.setattr(Chat, "used", slow)
    repl(one).take("/ctx")
    assert "stopped" in capsys.readouterr().err


def test_what_was_typed_ahead_is_sent_unless_ctrl_c_was_pressed() -> None:
    one = chat()
    front = repl(one, "abc", "def")
    assert front.run(None) == 0
    assert (contents(one)[::2], typed(front).withdrawn) == (["abc", "def"], 0)


def test_a_file_that_stays_attached_is_named(capsys: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    one = chat(engine(n_ctx=512))
    one.attach([("notes.txt", "x" * 300)])
    repl(one).take("y" * 300)
    said = capsys.readouterr().err.splitlines()
    assert "511 fit" in said[0]
    assert said[1:] == ["localspec: still attached, for the next message: notes.txt (/undo takes the files back)"]
    repl(one).take("   ")
    repl(one).take("abc")
    assert "still attached" not in capsys.readouterr().err
    assert one.attachments == []


def test_dropped_exchanges_in_words() -> None:
    assert LeftOut(2, 5).text == "the 2 oldest exchanges no longer fit and are left out (2 of 5)"
    assert LeftOut(1, 5).text == "the oldest exchange no longer fits and is left out (1 of 5)"


def finished(reason: str, tokens: int, stats: SpecStats | None = None) -> Finished:
    timings = Timings(prompt_n=10, cache_n=0, prompt_s=0.1, ttft_s=0.1, predicted_n=tokens, predicted_s=2.0)
    return Finished(1, reason, tuple(range(tokens)), None, timings, stats or SpecStats())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("reason", "limit", "end"),
    [
        ("stop", -1, "speculation off"),
        ("cancelled", -1, "stopped"),
        ("length", 142, "cut at -n 142"),
        ("length", -1, "context full"),
        ("length", 500, "context full"),
    ],
)
def test_why_an_answer_ended(reason: str, limit: int, end: str) -> None:
    assert status_line(finished(reason, 142), limit=limit, guesses=False).endswith(f" · {end}")


def test_the_status_line() -> None:
    stats = SpecStats(steps=75, drafted_steps=72, draft_n=294, tested=269, accepted=210)
    line = status_line(finished("stop", 123, stats))
    assert line == "123 tok · 61 tok/s · α 0.78 · accepted 71 % (210/294) · length 3.9"


@pytest.mark.parametrize(
    ("sources", "alone", "part"),
    [
        ([], ["draft-simple"], "tok/s · nothing drafted · draft-simple left alone"),
        ([("suffix", 9)], ["draft-simple"], "length 2.0 · from suffix · draft-simple left alone"),
        ([("draft-simple", 9)], ["draft-simple"], "length 2.0 · draft-simple tried and left alone"),
        ([("draft-simple", 5), ("suffix", 4)], [], "length 2.0"),
    ],
)
def test_the_status_line_names_who_is_left_alone(sources: list[tuple[str, int]], alone: list[str], part: str) -> None:
    by_source = tuple(SourceStats(name, n, 1) for name, n in sources)
    some = bool(sources)
    stats = SpecStats(9, 9 * some, 9 * some, 9 * some, 9 * some, by_source=by_source)
    assert status_line(finished("stop", 20, stats), alone=alone).endswith(part)


@pytest.fixture(autouse=True)
def default_interrupts() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
