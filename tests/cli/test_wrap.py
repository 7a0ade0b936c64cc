"""Answers broken between words while they come."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from localspec.cli.wrap import LONGEST, Wrapper, cells

PROSE = "The quick brown fox jumps over the lazy dog, then sleeps for a while. " * 3


def wrapped(text: str, width: int = 30, *, at_once: int = 1) -> str:
    wrapper = Wrapper(lambda: width)
    pieces = [text[at : at + at_once] for at in range(0, len(text), at_once)]
    return "".join([*map(wrapper.push, pieces), wrapper.end()])


def columns(line: str) -> int:
    return sum(map(cells, line))


def test_words_stay_whole() -> None:
    lines = wrapped(PROSE).split("\n")
    assert " ".join(lines) == PROSE
    assert max(map(columns, lines)) <= 30
    assert [word for line in lines for word in line.split()] == PROSE.split()
    for line, after in pairwise(lines):
        assert columns(line) + 1 + columns(after.split()[0]) > 30  # no line is broken too early


@pytest.mark.parametrize(
    "text", ["word " * 6 + "\n", "word " * 6, "a" * 30 + "\nb", "a" * 30 + "   \nb", "漢" * 15 + "\n"]
)
def test_a_full_line_has_no_empty_one_after_it(text: str) -> None:
    assert [line.rstrip() for line in wrapped(text).split("\n")] == [line.rstrip() for line in text.split("\n")]
    assert max(map(columns, wrapped(text).split("\n"))) <= 30


@pytest.mark.parametrize(
    "text",
    [
        f"```python\n{PROSE}\n~~\n{PROSE}\n```\n",
        f"1. so:\n   ```\n{PROSE}\n   ```\n",
        f"    {PROSE}\n",
        f"\t\tif {PROSE}\n",
        f"| {PROSE} | {PROSE} |\n",
        "https://example.org/" + "a/" * 99,
        "漢字" * 40,
        "a" * 80 + " \n",
    ],
)
def test_code_tables_and_what_has_no_spaces_stay_as_they_are(text: str) -> None:
    assert wrapped(text) == text


def test_code_ends_at_its_fence() -> None:
    text = f"```\n{PROSE}\n```\n"
    assert wrapped(text + PROSE) == text + wrapped(PROSE)


def test_items_of_a_list_are_prose_however_deep() -> None:
    lines = wrapped(f"    - {PROSE}\n        12. {PROSE}").split("\n")
    assert max(map(columns, lines)) <= 30
    assert lines[0].startswith("    - The")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x" * 27 + " 漢字漢字", "x" * 27 + " 漢字漢字"),
        ("x" * 29 + " 漢字漢字", "x" * 29 + "\n漢字漢字"),
        ("漢" * 14 + " ab cd", "漢" * 14 + "\nab cd"),
        ("漢" * 14 + " e\u0301", "漢" * 14 + " e\u0301"),  # 28 + 1 + 1: an accent takes no column
        ("x" * 23 + " 👩\u200d👩\u200d👧 ok", "x" * 23 + " 👩\u200d👩\u200d👧\nok"),
        ("x" * 25 + " one\u00a0two", "x" * 25 + "\none\u00a0two"),
    ],
)
def test_wide_and_combining_characters(text: str, shown: str) -> None:
    assert wrapped(text) == shown


def test_little_is_held_back_and_only_near_the_end_of_a_line() -> None:
    wrapper, shown = Wrapper(lambda: 60), ""
    for at, char in enumerate(PROSE):
        shown += wrapper.push(char)
        held = len(PROSE[: at + 1].rstrip()) - len(shown.rstrip())
        assert held < LONGEST
        if len(shown.split("\n")[-1]) + LONGEST <= 60:
            assert held <= 0


def test_a_long_word_begins_a_line_and_flows() -> None:
    wrapper = Wrapper(lambda: 30)
    assert wrapper.push("x" * 20 + " " + "y" * 9) == "x" * 20
    assert wrapper.push("y") == "\n" + "y" * 10
    assert wrapper.push("y" * 50) == "y" * 50


def test_the_window_is_as_wide_as_it_is_now() -> None:
    width = 60
    wrapper = Wrapper(lambda: width)
    shown = wrapper.push(PROSE[:50])
    width = 30
    rest = wrapper.push(PROSE[50:]) + wrapper.end()
    first, *lines = rest.split("\n")
    assert columns(shown + first) <= 60  # the terminal has broken it at 30
    assert len(lines) > 3
    assert max(map(columns, lines)) <= 30
    width = 90
    assert max(map(columns, wrapper.push(PROSE).split("\n"))) > 60


def test_no_width_is_no_wrapping() -> None:
    assert wrapped(PROSE, 0) == PROSE


@example("11漢 ", 1, 2)
@given(st.text(st.sampled_from("ab漢\u0301 \t\n`|-1.😀"), max_size=200), st.integers(1, 40), st.integers(1, 9))
def test_nothing_but_spaces_changes(text: str, width: int, at_once: int) -> None:
    shown = wrapped(text, width, at_once=at_once)
    assert re.sub(r"\s", "", shown) == re.sub(r"\s", "", text)
    assert shown == wrapped(text, width)
