"""The recorded session in docs/: made of the acts that the script has, and what the script does with a screen."""

from __future__ import annotations

import json
import re
from pathlib import Path

from scripts import record

DOCS = Path(__file__).resolve().parent.parent / "docs"


def test_the_transcript_has_every_act_and_no_slow_stop() -> None:
    page = (DOCS / "session.md").read_text("utf-8")
    titles = [act.title for act in record.ACTS]
    assert re.findall(r"^## (.*)$", page, re.MULTILINE)[1:] == titles
    waits = [float(seconds) for seconds in re.findall(r"^From ctrl-c to the prompt: (\S+) s\.$", page, re.MULTILINE)]
    assert len(waits) == sum(bool(act.stop) for act in record.ACTS)
    assert max(waits) <= record.STOPPED_IN


def test_the_recording_is_one() -> None:
    text = (DOCS / "session.cast").read_text("utf-8")
    header, *events = [json.loads(line) for line in text.splitlines()]
    assert (header["version"], header["width"], header["height"]) == (2, record.COLUMNS, record.ROWS)
    times = [seconds for seconds, kind, _ in events if kind == "o"]
    assert len(times) == len(events) > 100
    assert times == sorted(times)
    assert len(text.encode()) <= record.LIMIT


def test_what_is_new_on_a_screen() -> None:
    assert record.news([], ["$ chat", "hello", ">"]) == ("$ chat", "hello")
    assert record.news(["$ chat", ">"], ["$ chat", "> hi", "ho", ">"]) == ("> hi", "ho")
    assert record.news(["a", "b"], ["a", "b"]) == ()


def test_long_acts_are_shortened() -> None:
    head, tail = record.SHOWN
    lines = [str(n) for n in range(head + tail + 5)]
    short = record.shortened(lines)
    assert short == [*lines[:head], "[... 5 lines ...]", *lines[-tail:]]
    assert record.shortened(lines[:20]) == lines[:20]


def test_events_are_json_on_one_line() -> None:
    assert json.loads(record.event(1.23456, "α\r\n\x1b[2m")) == [1.235, "o", "α\r\n\x1b[2m"]
