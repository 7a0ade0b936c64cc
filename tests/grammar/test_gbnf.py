"""GBNF: what is read, what it means, and what is refused."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.errors import ExitCode, UsageError
from localspec.grammar import parse
from localspec.grammar.automaton import Automaton
from localspec.grammar.chars import byte_sequences, complement, union
from tests.grammar.support import grammars, language

LLAMA_JSON = r"""
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::= "[" ws ( value ("," ws value)* )? "]" ws   # a comment
string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
"""


@settings(deadline=None, max_examples=150)
@given(pair=grammars("abc"), texts=st.lists(st.text("abc", max_size=8), max_size=8))
def test_a_grammar_means_what_the_regular_expression_does(pair: tuple[str, str], texts: list[str]) -> None:
    holds = language(pair[0])
    for text in ["", "a", "ab", "abc", "aa", *texts]:
        assert holds(text) == bool(re.fullmatch(pair[1], text)), (pair, text)


@pytest.mark.parametrize(
    ("text", "yes", "no"),
    [
        (LLAMA_JSON, ['{"a":[1,{"b":null}] ,"é":"\\u00e9"}\n', "{}"], ["[]", '{"a"}', '{"a":01}', '{"a":"\n"}']),
        ('root ::= "(" root ")" | "x"', ["x", "((x))"], ["(x", "x)", ""]),
        ('root ::= "a" tail\ntail ::= | "b" tail', ["a", "abbb"], ["", "ba"]),
        ('root ::= ("")* ("a"?)* "b"', ["b", "aab"], ["a"]),
        (r'root ::= "\x41\u00e9\U0001F600\"\\\n"', ['Aé😀"\\\n'], ["A"]),
        (r"root ::= [^\]\-a-c]+", ["xyz^", "é"], ["a", "-", "]", ""]),
        ("root ::= .{2}", ["é😀", "\n\n"], ["a", "abc"]),
        ("root ::= [あ-ん]*", ["", "あいん"], ["ア", "a"]),
        ('root ::= a-1 |\n  b_2\n# between\na-1 ::= "1"\n\nb_2 ::= "2"', ["1", "2"], ["12"]),
        ('root ::= "a"{2,3}"b"{0,1}"c"{1,}', ["aac", "aaabcc"], ["ac", "aaaac", "aabb"]),
        ('root ::= "a" | dead\ndead ::= "b" dead', ["a"], ["b"]),
        ("root ::= (([ab]*)*)*", ["", "abab"], ["c"]),
    ],
)
def test_texts(text: str, yes: list[str], no: list[str]) -> None:
    holds = language(text)
    assert [one for one in yes if not holds(one)] == []
    assert [one for one in no if holds(one)] == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no rule root"),
        ('a ::= "b"', "no rule root"),
        ('root ::= "a" (', "line 1, column 14: this parenthesis is never closed"),
        ("root ::= foo", "line 1, column 10: the rule foo is not defined"),
        ('root ::= "a"\n\nroot ::= "b"', "line 3, column 1: the rule root is defined twice"),
        ('root = "a"', "line 1, column 6: ::= is missing after root"),
        ('root ::= "a" )', "line 1, column 14: ')' is not expected"),
        ('root ::= "a', "quote is never closed"),
        ("root ::= [a", "bracket is never closed"),
        ("root ::= [b-a]", "ends before it begins"),
        (r'root ::= "\q"', r"\q stands for no character"),
        (r'root ::= "\x4"', r"\x needs 2 hexadecimal digits"),
        (r'root ::= "\uD800"', "U+D800 is no character"),
        ('root ::= "a"{x}', "repetition cannot be read"),
        ('root ::= "a"{3,2}', "ends before it begins"),
        ('root ::= "a"{1,10001}', "more than 10000 repetitions"),
        ('root ::= ("a"{5000}){5000}', "beyond 200000 symbols"),
        ("root ::= " + "(" * 100_000, "more than 200 parentheses"),
        ("root ::= <think>", "tokens stand for no text"),
        ('root ::= root "a" | "b"', "rule root begins with itself"),
        ('root ::= "x" y\ny ::= z "a" | "c"\nz ::= "d"? y', "begins with itself"),
        ('root ::= "a" root', "allows no text"),
        ("root ::= []", "allows no text"),
        ("x" * (1 << 21), "characters"),
    ],
)
def test_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)) as caught:
        parse(text)
    assert caught.value.exit_code is ExitCode.USAGE
    assert caught.value.hint
    assert "\n" not in str(caught.value)


@settings(deadline=None, max_examples=200)
@given(st.text('root:="a()[]{}|*+?\\n \n1,-^<', max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    for grammar in (text, "root ::= " + text):
        with suppress(UsageError):
            Automaton(parse(grammar)).forced(0, 8)


def test_what_is_too_ambiguous_is_refused_while_it_is_read() -> None:
    with pytest.raises(UsageError, match="too ambiguous"):
        Automaton(parse("root ::= ([ab]{0,5000}){0,5000}"))
    automaton = Automaton(parse("root ::= [ab]{0,3000} [ab]{0,3000} [ab]{0,3000} [0-9]"))
    with pytest.raises(UsageError, match="too much memory"):
        automaton.read(automaton.start, b"ab" * 9000)


def test_lists_of_any_length_need_few_states() -> None:
    automaton = Automaton(parse('root ::= item root | "."\nitem ::= "a" | "b"'))
    automaton.read(automaton.start, b"ab" * 5000)
    assert automaton.n_states < 5


@given(st.lists(st.tuples(st.integers(0, 0x10FFFF), st.integers(0, 0x10FFFF)).map(sorted), max_size=4))
@settings(deadline=None, max_examples=60)
def test_characters_are_their_bytes(pairs: list[list[int]]) -> None:
    ranges = union((a, b) for a, b in pairs)
    inside = byte_sequences(ranges)
    outside = byte_sequences(complement(ranges))

    def holds(sequences: list[tuple[int, ...]], text: bytes) -> bool:
        return any(
            len(one) == len(text) and all(s >> b & 1 for s, b in zip(one, text, strict=True)) for one in sequences
        )

    edges = {code + by for pair in pairs for code in pair for by in (-1, 0, 1)} | {
        0,
        0x7F,
        0x80,
        0x7FF,
        0xFFFF,
        0x10000,
    }
    for code in edges:
        if 0 <= code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF:
            wanted = any(a <= code <= b for a, b in ranges)
            assert holds(inside, chr(code).encode()) == wanted
            assert holds(outside, chr(code).encode()) != wanted
