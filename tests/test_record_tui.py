"""The recorded session of the full screen in docs/: made of the acts that the script has."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from scripts import record_tui

DOCS = Path(__file__).resolve().parent.parent / "docs"


def test_the_page_has_every_act_at_both_sizes() -> None:
    page = (DOCS / "tui-session.md").read_text("utf-8")
    titles = [act.title for act in record_tui.ACTS if act.title]
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == titles
    for columns, rows in record_tui.SIZES:
        screens = re.findall(rf"^{columns}×{rows}:\n\n(`+)text\n(.*?)\n\1$", page, re.MULTILINE | re.DOTALL)
        assert len(screens) == len(titles)
        assert all(screen.count("\n") < rows for _, screen in screens)


@pytest.mark.parametrize("size", record_tui.SIZES)
def test_the_recordings_are_some(size: tuple[int, int]) -> None:
    text = (DOCS / record_tui.cast_name(*size)).read_text("utf-8")
    header, *events = [json.loads(line) for line in text.splitlines()]
    assert (header["version"], header["width"], header["height"]) == (2, *size)
    times = [seconds for seconds, kind, _ in events if kind == "o"]
    assert len(times) == len(events) > 100
    assert times == sorted(times)
    assert len(text.encode()) <= record_tui.LIMIT


def test_the_acts_wait_for_what_the_screen_shows() -> None:
    for act in record_tui.ACTS:
        assert act.until or act.leaves
        for pattern in act.until:
            re.compile(pattern)
