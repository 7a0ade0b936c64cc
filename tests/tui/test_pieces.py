"""What the screen is made of, without a screen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.talk.turn import Asked
from localspec.text.thinking import Piece
from localspec.tui.composer import Past, Pastes
from localspec.tui.news import Came, Doing, News, Said, joined
from localspec.tui.sections import Sections, code_blocks
from localspec.tui.status import Status, StatusLine
from localspec.types import EngineInfo, Finished, Prefill, SpecStats, Started, StepStats, Timings, TokenInfo, Tokens

# -- news


def test_text_of_a_kind_is_joined_and_steps_do_not_part_it() -> None:
    step = Came(Tokens(1, "a", (), None))
    news: list[News] = [
        step,
        Came(Piece("thinking", "a")),
        step,
        Came(Piece("thinking", "b")),
        step,
        Came(Piece("answer", "c")),
        Said("x"),
        Came(Piece("answer", "d")),
    ]
    assert joined(news) == [
        step,
        Came(Piece("thinking", "ab")),
        step,
        step,
        Came(Piece("answer", "c")),
        Said("x"),
        Came(Piece("answer", "d")),
    ]


def test_only_the_newest_progress_counts() -> None:
    assert joined([Doing("a"), Doing("b"), Came(Prefill(1, 1, 9)), Came(Prefill(1, 2, 9)), Doing("c")]) == [
        Doing("b"),
        Came(Prefill(1, 2, 9)),
        Doing("c"),
    ]


# -- sections

MARKDOWN = st.lists(
    st.sampled_from(
        [
            "# head",
            "some words here",
            "- item",
            "1. first",
            "  more of it",
            "",
            "```py",
            "```",
            "~~~",
            "x = 1",
            "a | b",
            "> q",
        ]
    ),
    max_size=60,
).map("\n".join)


def sections_of(text: str, sizes: list[int], enough: int, *, openers: bool = True) -> list[str]:
    sections, parts = Sections(enough, 2 * enough), [""]
    at = 0
    for size in [*sizes, len(text)]:
        for part in sections.push(text[at : at + size]):
            if part.begins:
                parts.append(part.opener if openers else "")
            parts[-1] += part.text
        at += size
    return parts


@given(MARKDOWN, st.lists(st.integers(1, 9), max_size=80), st.integers(10, 80))
def test_nothing_is_lost_between_sections(text: str, sizes: list[int], enough: int) -> None:
    assert "".join(sections_of(text, sizes, enough, openers=False)) == text
    parts = sections_of(text, sizes, enough)
    assert "".join(code_blocks(text)) == "".join(block for part in parts for block in code_blocks(part))


def test_a_paragraph_begins_a_section_and_a_list_goes_on_in_one() -> None:
    text = "word " * 10 + "\n\n" + "next\n"
    assert sections_of(text, [], 20) == ["word " * 10 + "\n\n", "next\n"]
    items = "".join(f"{n}. item number {n}\n" for n in range(1, 9))
    cut = sections_of(items, [], 30)
    assert len(cut) > 1
    assert all(part[0].isdigit() for part in cut)


def test_code_goes_on_as_code() -> None:
    text = "```py\n" + "x = 1\n" * 20 + "```\nend\n"
    parts = sections_of(text, [7] * 30, 20)
    assert len(parts) > 2
    assert all(part.startswith("```py\n") for part in parts)
    assert parts[-1].endswith("```\nend\n")


def test_code_blocks_are_found() -> None:
    assert code_blocks("a\n```py\nx\n\ny\n```\nb\n~~~~\n```\n~~~~\n```\nopen") == ["x\n\ny\n", "```\n", "open\n"]
    assert code_blocks("no ``` fence") == []


# -- writing


def test_a_long_paste_is_shown_in_words_and_sent_whole() -> None:
    pastes = Pastes()
    text = "a line\n" * 3000
    label = pastes.fold(text)
    assert label == "[pasted 3000 lines #1]"
    assert pastes.fold("short") == "short"
    assert pastes.unfold(f"see {label}!") == f"see {text}!"
    assert pastes.unfold("[pasted 3 lines #1] [pasted 9 lines #7]") == "[pasted 3 lines #1] [pasted 9 lines #7]"


def test_the_past_is_searched_by_what_is_written() -> None:
    past = Past(["use this", "other", "use that"])
    assert past.back("use") == "use that"
    assert past.back("use that") == "use this"
    assert past.back("use this") is None
    assert past.on() == "use that"
    assert past.on() == "use"
    assert past.on() is None
    past.add("new")
    assert past.back("") == "new"


# -- the status line

INFO = EngineInfo("folder/target.gguf", None, ("ngram-simple",), "fake", 1000, 1000, 40, True)


def test_what_was_not_measured_is_not_available() -> None:
    assert Status(info=INFO).line(200) == "ready · target.gguf · guesses from ngram-simple"
    assert Status(info=INFO, used=5).line(200) == (
        "ready · n/a tok/s · context -------- 5/1000 · accepted n/a · length n/a"
        " · target.gguf · guesses from ngram-simple"
    )
    assert Status().line(80) == "no model: F5 loads it, F7 another"
    assert Status(doing="loading a.gguf …", share=0.25).line(80) == "loading a.gguf … 25 %"


def test_numbers_come_from_the_answer() -> None:
    stats = SpecStats(
        steps=10, drafted_steps=10, draft_n=40, tested=30, accepted=20, emitted=30, t_plain=3.0, t_judged=2.0
    )
    finished = Finished(1, "stop", (1,) * 30, None, Timings(100, 0, 0.1, 0.1, 30, 2.9), stats)
    status = Status(info=INFO).heard(Started(1, 100, 0, 7))
    status = status.heard(Tokens(1, "ab", (TokenInfo(1, b"a"), TokenInfo(2, b"b")), None)).heard(finished)
    assert status.line(200).startswith(
        "ready · 10 tok/s · context #------- 102/1000 · speed-up 1.50× · accepted 50 % · length 3.0 · target.gguf"
    )
    assert "speculation off" in Status(info=INFO, guesses=False).line(200)


def test_while_an_answer_comes_the_numbers_are_its_own() -> None:
    step = StepStats(draft_n=4, tested=3, accepted=2, emitted=3, cut=0, t_draft=0.1, t_verify=0.1, t_host=0.1)
    line = StatusLine()
    line.show(Status(info=INFO))
    line.hear(Asked("a", 0))
    line.hear(Tokens(1, "abc", (TokenInfo(1, b"a"),) * 3, step))
    line.hear(Tokens(1, "abc", (TokenInfo(1, b"a"),) * 3, step))
    assert "10 tok/s · context -------- 6/1000 · accepted 50 % · length 3.0" in line.status.line(200)


@pytest.mark.parametrize("width", [1, 10, 40, 80])
def test_the_line_fits(width: int) -> None:
    assert len(Status(info=INFO, used=5).line(width)) <= width
