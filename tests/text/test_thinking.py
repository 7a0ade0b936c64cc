from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.text.thinking import KNOWN_TAGS, Tags, ThinkingSplitter, named_tags, opened_by

THINK = KNOWN_TAGS[0]
CHANNEL = KNOWN_TAGS[-1]


def split(pieces: list[str], *, tags: tuple[Tags, ...] = KNOWN_TAGS, inside: Tags | None = None) -> tuple[str, str]:
    """Thinking and answer of a stream that comes in these pieces."""
    splitter = ThinkingSplitter(tags, inside=inside)
    got = [piece for text in pieces for piece in splitter.push(text)] + splitter.finish()
    assert all(piece.text for piece in got)
    return (
        "".join(piece.text for piece in got if piece.kind == "thinking"),
        "".join(piece.text for piece in got if piece.kind == "answer"),
    )


def whole(text: str, *, inside: bool = False) -> tuple[str, str]:
    """What a reader of the whole text makes of it, for ``<think>`` alone."""
    thinking, behind_tag = "", False
    if inside:
        text = text if text.lstrip().startswith("<think>") else "<think>" + text
    while match := re.match(r"\s*<think>\s*(.*?)(\s*</think>|\Z)", text, re.DOTALL):
        thinking += match[1]
        text, behind_tag = text[match.end() :], match[2] != "" or match.end() == len(text)
    return thinking, text.lstrip() if behind_tag else text


@pytest.mark.parametrize(
    ("text", "thinking", "answer"),
    [
        ("plain", "", "plain"),
        ("", "", ""),
        (" \n plain ", "", " \n plain "),
        ("<think>\nhm, so\n</think>\n\nYes. ", "hm, so", "Yes. "),
        ("\n<think></think>Yes", "", "Yes"),
        ("<think>never ends ", "never ends ", ""),
        ("<think>a</think> <think>b</think>c", "ab", "c"),
        ("<think>a < b </thinks </think>c", "a < b </thinks", "c"),
        ("<thinking>a</think></thinking>c", "a</think>", "c"),
        ("[THINK]a[/THINK]c", "a", "c"),
        ("<thi", "", "<thi"),
        ("<think>a</thi", "a</thi", ""),
        ("In HTML, <think>x</think> is no tag.", "", "In HTML, <think>x</think> is no tag."),
        ("<think>a</think>write <think>", "a", "write <think>"),
        ("</think>stray", "", "</think>stray"),
        ("<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b", "a", "b"),
        ("<|channel|>final<|message|>b <think>", "", "b <think>"),
        ("<|START_THINKING|>a<|END_THINKING|><|START_RESPONSE|>b", "a", "b"),
        ("<think>a</think>   ", "a", ""),
    ],
)
def test_thinking_and_answer(text: str, thinking: str, answer: str) -> None:
    assert split([text]) == (thinking, answer)
    assert split(list(text)) == (thinking, answer)


def test_text_goes_out_as_soon_as_it_is_certain() -> None:
    splitter = ThinkingSplitter()
    assert splitter.push("<think>") == []
    assert splitter.push("so ") == [("thinking", "so")]
    assert splitter.push("what </th") == [("thinking", " what")]
    assert splitter.push("e x") == [("thinking", " </the x")]
    assert splitter.push("</think>\n") == []
    assert splitter.push("\nA") == [("answer", "A")]
    assert splitter.push(" <") == [("answer", " <")]
    assert splitter.finish() == []


def test_a_tag_the_prompt_has_opened() -> None:
    assert split(["hm", "</think>", "\nyes"], inside=THINK) == ("hm", "yes")
    assert split(["<think>\nhm", "</think>", "yes"], inside=THINK) == ("hm", "yes")
    assert split(["\n"], inside=THINK) == ("", "")
    assert split(["<thi"], inside=THINK) == ("<thi", "")


@pytest.mark.parametrize(
    ("prompt", "tags"),
    [
        ("<|Assistant|><think>\n", THINK),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", None),
        ("<|im_start|>assistant\n", None),
        ("[THINK]", Tags("[THINK]", "[/THINK]")),
    ],
)
def test_whether_a_prompt_opens_thinking(prompt: str, tags: Tags | None) -> None:
    assert opened_by(prompt, KNOWN_TAGS) == tags


def test_the_tags_a_template_names() -> None:
    assert named_tags("{{ content.split('</think>')[-1] }}") == (THINK,)
    assert named_tags("{{ '<|channel|>analysis<|message|>' }}") == (CHANNEL,)
    assert named_tags("{{ content }}") == ()


def test_other_tags() -> None:
    assert split(list("<a>x</a>y"), tags=(Tags("<a>", "</a>"),)) == ("x", "y")
    assert split(list("<think>y"), tags=(Tags("<a>", "</a>"),)) == ("", "<think>y")


PARTS = st.sampled_from(["<think>", "</think>", "<thi", "nk>", "<", "/", "</", "think>", " ", "\n", "a", "ü😀", ">"])


@given(st.lists(PARTS, max_size=12).map("".join), st.data(), st.booleans())
def test_pieces_are_the_text_without_its_tags_however_it_is_cut(text: str, data: st.DataObject, inside: bool) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    opened = THINK if inside else None
    got = split(pieces, tags=(THINK,), inside=opened)
    assert got == split([text], tags=(THINK,), inside=opened) == whole(text, inside=inside)


@given(st.lists(st.sampled_from([*(x for tags in KNOWN_TAGS for x in tags if x), "<", "<|", "a", " "]), max_size=8))
def test_every_cut_of_every_tag_gives_the_same(parts: list[str]) -> None:
    text = "".join(parts)
    assert split(list(text)) == split([text]) == split(parts)
