"""Conversations that a template does not take as they are."""

from __future__ import annotations

import pytest

from localspec.chat import ChatTemplate, notices
from localspec.errors import ModelError
from localspec.types import Message

STRICT = """{% for message in messages %}{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}\
{{ raise_exception('must alternate') }}{% endif %}[{{ message.role }}]{{ message.content }}{% endfor %}"""
SILENT = "{% for m in messages %}{% if m.role != 'system' %}[{{ m.role }}]{{ m.content }}{% endif %}{% endfor %}"
SYSTEM, JOINED, OPENED = "no system message", "two questions in a row", "begins with a question"


def turns(*pairs: str) -> list[Message]:
    """``"user: text"`` and so on."""
    split = (pair.partition(": ") for pair in pairs)
    return [Message(role, text) for role, _, text in split]


@pytest.mark.parametrize(
    ("messages", "text", "lines"),
    [
        (["user: a", "assistant: b", "user: c"], "[user]a[assistant]b[user]c", []),
        (["system: S", "user: a"], "[user]S\n\na", [SYSTEM]),
        (["system: S", "system: T", "user: a"], "[user]S\n\nT\n\na", [SYSTEM]),
        (["user: a", "user: b", "user: c"], "[user]a\n\nb\n\nc", [JOINED]),
        (["user: a", "assistant: b", "user: c", "user: d"], "[user]a[assistant]b[user]c\n\nd", [JOINED]),
        (["assistant: hello", "user: a"], "[user][assistant]hello[user]a", [OPENED]),
        (["system: S", "user: a", "user: b"], "[user]S\n\na\n\nb", [JOINED, SYSTEM]),
        (["system: S", "assistant: hello", "user: a"], "[user]S[assistant]hello[user]a", [OPENED, SYSTEM]),
        (
            ["system: S", "assistant: h", "user: a", "user: b"],
            "[user]S[assistant]h[user]a\n\nb",
            [OPENED, JOINED, SYSTEM],
        ),
    ],
)
def test_what_a_strict_template_gets(messages: list[str], text: str, lines: list[str]) -> None:
    template = ChatTemplate(STRICT, "strict.gguf")
    assert template.render(turns(*messages), bos="", eos="").text == text
    told = notices(STRICT, turns(*messages))
    assert len(told) == len(lines)
    assert all(line in said for line, said in zip(lines, told, strict=True))


def test_variables_that_a_template_never_looks_at_are_told() -> None:
    source = "{% if enable_thinking is defined %}{{ messages }}{% set y = 1 %}{% endif %}{{ y }}"
    (told,) = notices(source, turns("user: a"), {"enable_thinking": 1, "enable_thinkin": 1})
    assert "never looks at enable_thinkin (" in told


@pytest.mark.parametrize("source", [None, "{% if %}", "{{ raise_exception('no') }}"])
def test_what_is_unknown_or_broken_has_nothing_to_tell(source: str | None) -> None:
    assert notices(source, turns("system: S", "user: a")) == ()


def test_what_no_repair_helps_is_refused() -> None:
    with pytest.raises(ModelError, match=r"strict\.gguf refuses these messages: must alternate"):
        ChatTemplate(STRICT, "strict.gguf").render(turns("system: S"), bos="", eos="")
    source = "{{ raise_exception(messages|length|string) }}"
    with pytest.raises(ModelError, match="refuses these messages: 3"):
        ChatTemplate(source, "x").render(turns("system: S", "user: a", "user: b"), bos="", eos="")


def test_a_system_message_that_a_template_swallows_is_moved() -> None:
    template = ChatTemplate(SILENT, "silent.gguf")
    assert template.render(turns("system: S!", "user: a"), bos="", eos="").text == "[user]S!\n\na"
    assert SYSTEM in notices(SILENT, turns("system: S!", "user: a"))[0]
    assert template.render(turns("system: ", "user: a"), bos="", eos="").text == "[user]a"


def test_a_system_message_that_a_template_rewrites_is_left_where_it_is() -> None:
    template = ChatTemplate("{{ messages[0].content|replace('\n', ' ') }}|{{ messages[1].content }}", "t")
    rendered = template.render(turns("system: two\nlines", "user: a"), bos="", eos="")
    assert (rendered.text, rendered.repairs) == ("two lines|a", ())


def test_both_faults_at_once() -> None:
    source = SILENT.replace("[{{", "{{ raise_exception('x') if loop.previtem and loop.previtem.role == m.role }}[{{")
    rendered = ChatTemplate(source, "t").render(turns("system: S!", "user: a", "user: b"), bos="", eos="")
    assert rendered.text == "[user]S!\n\na\n\nb"


def test_going_on_with_an_answer_keeps_its_last_space() -> None:
    template = ChatTemplate("{% for m in messages %}<{{ m.role }}>{{ m.content|trim }}</>{% endfor %}", "t")
    text = template.render(turns("user: a ", "assistant: so  "), bos="", eos="").text
    assert text == "<user>a</><assistant>so  "


@pytest.mark.parametrize("source", ["{{ messages[0].content }}", "{{ messages[1].content * 2 }}"])
def test_a_template_that_cannot_go_on_says_so(source: str) -> None:
    with pytest.raises(ModelError, match=r"t\.gguf cannot go on with an answer"):
        ChatTemplate(source, "t.gguf").render(turns("user: a", "assistant: b"), bos="", eos="")


def test_reserved_variables_are_not_overridden() -> None:
    template = ChatTemplate("{{ messages|length }}{{ add_generation_prompt }}{{ bos_token }}{{ x }}", "t")
    variables = {"messages": [], "add_generation_prompt": 1, "bos_token": "B", "x": 5}
    assert template.render(turns("user: a"), bos="<s>", eos="", variables=variables).text == "1True<s>5"


def test_parts_for_training_are_text_like_any_other() -> None:
    source = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}"
    assert ChatTemplate(source, "t").render(turns("user: a", "user: b"), bos="", eos="").text == "ab"


def test_a_template_that_goes_through_the_tools_unasked() -> None:
    source = "{% for tool in tools %}{{ tool }}{% endfor %}{{ messages[0].content }}"
    assert ChatTemplate(source, "t").render(turns("user: a"), bos="", eos="").text == "a"
    with pytest.raises(ModelError, match="t fails"):
        ChatTemplate("{{ 'a' + 1 }}", "t").render(turns("user: a"), bos="", eos="")


@pytest.mark.parametrize(
    ("behind", "mark"),
    [
        ("<|end|>\n<|endoftext|>", "<|end|>"),
        ("\n</s>", "</s>"),
        ("<a><b>", "<a>"),
        ("[/A]", "[/A]"),
        ("\n\n### Next", None),
        ("", None),
        ("{{ raise_exception('no') }}", None),
    ],
)
def test_the_mark_behind_an_answer(behind: str, mark: str | None) -> None:
    source = "{% for m in messages %}{{ m.content }}{% if m.role == 'assistant' %}" + behind + "{% endif %}{% endfor %}"
    assert ChatTemplate(source, "t").turn_end(bos="", eos="") == mark
    assert ChatTemplate("<x>", "t").turn_end(bos="", eos="") is None
