"""Named rules of GBNF, as they are collected for a schema."""

from __future__ import annotations

import re
from collections.abc import Sequence

from localspec.grammar.texts import JSON_RULES, literal, plain_chars, with_needs


class RuleBook:
    """Rules by name, in the order they were asked for; those of JSON itself come along where they are used."""

    def __init__(self) -> None:
        self._rules: dict[str, str] = {}
        self._used = {"space"}

    def gbnf(self, root: str) -> str:
        """All of it as one grammar whose texts are those of the rule ``root``."""
        names = with_needs(self._used)
        rules = {"root": root, **self._rules}
        rules |= {name: text for name, text in JSON_RULES.items() if name in names}
        return "".join(f"{name} ::= {text}\n" for name, text in rules.items())

    def json(self, name: str) -> str:
        """A rule of JSON, by its name."""
        self._used.add(name)
        return name

    def add(self, name: str, text: str) -> str:
        """A new rule; the name that it got, which is like ``name``."""
        if text in JSON_RULES:
            return text
        name = self.reserve(name)
        self._rules[name] = text
        return name

    def reserve(self, name: str) -> str:
        """A free name like ``name``, for a rule that is yet to be written."""
        name = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[-40:].strip("-") or "rule"
        number, free = 1, name
        while free in self._rules or free in JSON_RULES or free == "root":
            number += 1
            free = f"{name}-{number}"
        self._rules[free] = ""
        return free

    def write(self, name: str, text: str) -> None:
        """The text of a reserved name."""
        self._rules[name] = text

    def other_key(self, names: Sequence[str], name: str) -> str:
        """A rule for the keys of an object that are none of ``names``, without escapes, by which one of those might be
        spelt differently."""
        rest = self.add(f"{name}-key-rest", f"{plain_chars()}*")
        nodes: dict[str, list[str]] = {"": []}
        for key in names:
            for end in range(len(key)):
                if key[: end + 1] not in nodes:
                    nodes[key[:end]].append(key[end])
                    nodes[key[: end + 1]] = []
        rules = {prefix: self.reserve(f"{name}-key") for prefix in nodes}
        ends = set(names)
        for prefix, children in nodes.items():
            ways = [f"{plain_chars(but=map(ord, children))} {rest}"]
            # Others need an escape, and no key has one.
            ways += [f"{literal(one)} {rules[prefix + one]}" for one in children if one >= " " and one not in '"\\\x7f']
            self._rules[rules[prefix]] = ("" if prefix in ends else "| ") + " | ".join(ways)
        return self.add(f"{name}-key", f'"\\"" {rules[""]} "\\"" space')
