"""A conversation as a page for a browser."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.chat.conversation import Conversation
from localspec.chat.transcript import export
from tests.cli.repl.support import messages

ANY = st.text(st.characters() | st.characters(categories=["Cs"]) | st.sampled_from("<>&\"'`\n"))
VOID = {"meta"}


class Page(HTMLParser):
    """Tags, attributes and text of a page; checks that tags are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)


def page(*texts: str, system: str | None = None, title: str = "t") -> Page:
    return Page(export(Conversation(system, messages(*texts)), "html", title))


@given(question=ANY, answer=ANY, system=ANY, title=ANY)
def test_no_text_becomes_markup(question: str, answer: str, system: str, title: str) -> None:
    conversation = Conversation(system, messages(question))
    conversation.add("assistant", answer, thinking=answer)
    text = export(conversation, "html", title)
    text.encode()
    seen, plain = Page(text), page("x", "y", system="z")
    assert set(seen.tags) <= {*plain.tags, "details", "summary", "pre", "code"}
    assert set(seen.attributes) <= {*plain.attributes, ("class", "user")}


def test_scripts_are_text() -> None:
    evil = '</p></section><script>alert(1)</script><img src=x onerror="alert(1)">'
    seen = page(evil, f"```\n{evil}\n```", system=evil, title=evil)
    assert "script" not in seen.tags
    assert seen.texts["code"] == [evil]
    assert seen.texts["title"] == seen.texts["h1"] == [evil]


def test_a_page_fetches_nothing_and_suits_the_paper_and_the_dark() -> None:
    text = export(Conversation("S", messages("a", "b")), "html")
    assert "://" not in text
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in Page(text).attributes
    assert "@media print" in text
    assert "prefers-color-scheme: dark" in text


def test_thinking_is_folded_and_a_broken_answer_marked() -> None:
    conversation = Conversation(None, messages("why?"))
    conversation.add("assistant", "so", thinking="hm <b>", stopped=True)
    seen = Page(export(conversation, "html"))
    assert seen.tags.count("details") == 1
    assert seen.texts["p"] == ["why?", "hm <b>", "so", "(stopped)"]


@pytest.mark.parametrize(
    ("answer", "texts", "code"),
    [
        ("a\n```python\nx = 1\n\n```\nb", ["a", "b"], ["x = 1\n"]),
        ("```\nopen", [], ["open"]),
        ("````\n```\n````", [], ["```"]),
        ("a ```b``` c", ["a ```b``` c"], []),
        ("```not `a` fence", ["```not `a` fence"], []),
        ("", [], []),
    ],
)
def test_fenced_code_stands_apart(answer: str, texts: list[str], code: list[str]) -> None:
    seen = page("?", answer)
    assert (seen.texts.get("p", [])[1:], seen.texts.get("code", [])) == (texts, code)
