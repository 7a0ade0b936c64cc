from __future__ import annotations

import pytest

from localspec.chat import reasoning_of
from localspec.chat.reasoning import Mode
from localspec.text.thinking import KNOWN_TAGS

SWITCHED = """{% for m in messages %}{{ m.content.split('</think>')[-1] }}|{% endfor %}assistant:
{% if enable_thinking is defined and enable_thinking is false %}{{ '<think>\n\n</think>\n\n' }}{% endif %}"""
UNASKED = (
    "{% if not thinking is defined %}{% set thinking = false %}{% endif %}{{ '<think>' if thinking else '</think>' }}"
)
ALWAYS = "{{ messages[-1].content.split('</think>')[-1] }}<|Assistant|><think>\n"
BUDGET = "{{ thinking_budget if thinking_budget is defined }}{{ '</seed:think>' }}"
PLAIN = "{{ messages[-1].content }}"


@pytest.mark.parametrize(
    ("source", "mode", "variables", "opened"),
    [
        (SWITCHED, "auto", {}, False),
        (SWITCHED, "on", {"enable_thinking": True}, False),
        (SWITCHED, "off", {"enable_thinking": False}, False),
        (UNASKED, "on", {"thinking": True}, True),
        (UNASKED, "off", {"thinking": False}, False),
        (BUDGET, "on", {}, False),
        (BUDGET, "off", {"thinking_budget": 0}, False),
        (ALWAYS, "auto", {}, True),
        (ALWAYS, "off", {}, True),
        (PLAIN, "off", {}, False),
        ("{% if %}", "on", {}, False),
        ("{{ raise_exception('no') }}", "on", {}, False),
        (None, "off", {}, False),
    ],
)
def test_switches_and_open_tags(source: str | None, mode: Mode, variables: dict[str, object], opened: bool) -> None:
    reasoning = reasoning_of(source, mode)
    assert reasoning.variables == variables
    assert (reasoning.opened == KNOWN_TAGS[0]) is opened


@pytest.mark.parametrize("mode", ["auto", "on", "off"])
@pytest.mark.parametrize("source", [SWITCHED, UNASKED, BUDGET, ALWAYS, PLAIN, None])
def test_what_a_grammar_bounds_is_no_thinking(source: str | None, mode: Mode) -> None:
    reasoning = reasoning_of(source, mode, bound=True)
    assert reasoning.variables == reasoning_of(source, "off").variables
    assert reasoning.notice is None
    splitter = reasoning.splitter()
    pieces = [*splitter.push('<think>{"a": 1}'), *splitter.finish()]
    assert {piece.kind for piece in pieces} == {"answer"}
    assert "".join(piece.text for piece in pieces) == '<think>{"a": 1}'


def test_what_the_user_sets_stands() -> None:
    assert reasoning_of(SWITCHED, "off", {"enable_thinking": True, "x": 1}).variables == {
        "enable_thinking": True,
        "x": 1,
    }


@pytest.mark.parametrize(("source", "told"), [(SWITCHED, False), (ALWAYS, True), (PLAIN, False), (UNASKED, False)])
def test_thinking_that_cannot_be_turned_off_is_told(source: str, told: bool) -> None:
    assert (reasoning_of(source, "off").notice is not None) is told
    assert reasoning_of(source, "auto").notice is None


def test_the_tags_of_the_template_or_all() -> None:
    assert reasoning_of(SWITCHED, "auto").tags == KNOWN_TAGS[:1]
    assert reasoning_of(PLAIN, "auto").tags == KNOWN_TAGS


def test_a_splitter_begins_where_the_prompt_ends() -> None:
    reasoning = reasoning_of(ALWAYS, "auto")
    assert reasoning.splitter().push("hm</think>yes") == [("thinking", "hm"), ("answer", "yes")]
    assert reasoning.splitter(continued=True).push("and so on") == [("answer", "and so on")]
