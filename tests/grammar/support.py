"""Grammars at random, and what a plain reading of them says."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from localspec.grammar import parse, schema_grammar
from localspec.grammar.automaton import DEAD, Automaton


def language(gbnf: str) -> Callable[[str | bytes], bool]:
    """Whether a text is one of the grammar's."""
    automaton = Automaton(parse(gbnf))

    def holds(text: str | bytes) -> bool:
        state = automaton.read(automaton.start, text.encode() if isinstance(text, str) else text)
        return state != DEAD and automaton.accepts(state)

    return holds


def schema_language(schema: Any) -> Callable[[str | bytes], bool]:
    return language(schema_grammar(json.dumps(schema)))


def grammars(letters: str) -> st.SearchStrategy[tuple[str, str]]:
    """A grammar without recursion as GBNF, and the same as a regular expression."""
    atoms = st.one_of(
        st.text(letters, min_size=1, max_size=3).map(lambda text: (f'"{text}"', f"(?:{text})")),
        st.lists(st.sampled_from(letters), min_size=1, max_size=3).map(
            lambda some: (f"[{''.join(some)}]", f"[{''.join(some)}]")
        ),
    )
    repeats = st.sampled_from(["*", "+", "?", "{2}", "{0,3}", "{1,2}", "{2,}"])

    def bigger(parts: st.SearchStrategy[tuple[str, str]]) -> st.SearchStrategy[tuple[str, str]]:
        lists = st.lists(parts, min_size=2, max_size=3)
        return st.one_of(
            lists.map(lambda some: (" ".join(f"({a})" for a, _ in some), "".join(b for _, b in some))),
            lists.map(lambda some: (" | ".join(f"({a})" for a, _ in some), f"(?:{'|'.join(b for _, b in some)})")),
            st.tuples(parts, repeats).map(lambda one: (f"({one[0][0]}){one[1]}", f"(?:{one[0][1]}){one[1]}")),
        )

    return st.recursive(atoms, bigger, max_leaves=6).map(lambda pair: (f"root ::= {pair[0]}\n", pair[1]))
