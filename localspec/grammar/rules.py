"""A grammar over bytes: what a parsed GBNF text becomes, and whether it can be matched."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from localspec.errors import UsageError

#: A symbol: ``n >= 0`` is rule n, ``n < 0`` the set of bytes ``~n``.
Symbol = int
Alternative = tuple[Symbol, ...]


@dataclass(frozen=True, slots=True)
class Rules:
    """``alternatives[n]`` are those of rule n, ``names[n]`` is what messages call it, ``sets`` are sets of bytes as in
    `localspec.grammar.chars`; the text is one of rule ``root``."""

    alternatives: tuple[tuple[Alternative, ...], ...]
    names: tuple[str, ...]
    sets: tuple[int, ...]
    root: int


def checked(rules: Rules) -> Rules:
    """The same language without alternatives that can never be finished.

    Raises:
        UsageError: no text at all is left, or a rule begins with itself (left recursion), which is refused as
            llama.cpp does.
    """
    ends = _least(rules, lambda symbol: symbol < 0)
    if rules.root not in ends:
        raise UsageError(
            "the grammar allows no text: its root can never be finished",
            hint=f"Give the rule {_unfinished(rules, ends)} an alternative that does not need itself.",
        )
    kept = tuple(
        tuple(one for one in alternatives if all(symbol < 0 or symbol in ends for symbol in one))
        for alternatives in rules.alternatives
    )
    rules = Rules(kept, rules.names, rules.sets, rules.root)
    looping = _left_recursive(rules, _least(rules, lambda symbol: False))
    if looping is not None:
        raise UsageError(
            f"the grammar's rule {rules.names[looping]} begins with itself (left recursion)",
            hint='Put what it begins with first: list ::= item ("," item)*.',
        )
    return rules


def _unfinished(rules: Rules, ends: set[int]) -> str:
    return next(name for n, name in enumerate(rules.names) if n not in ends)


def _least(rules: Rules, is_fine: Callable[[Symbol], bool]) -> set[int]:
    """The rules with an alternative of nothing but fine symbols and rules of this set (least fixed point)."""
    users: dict[int, list[tuple[int, int]]] = defaultdict(list)
    missing: dict[tuple[int, int], int] = {}
    found: list[int] = []
    for rule, alternatives in enumerate(rules.alternatives):
        for at, alternative in enumerate(alternatives):
            open_symbols = [symbol for symbol in alternative if not is_fine(symbol)]
            missing[rule, at] = len(open_symbols)
            for symbol in open_symbols:
                users[symbol].append((rule, at))
            if not open_symbols:
                found.append(rule)
    known: set[int] = set()
    while found:
        rule = found.pop()
        if rule in known:
            continue
        known.add(rule)
        for user in users[rule]:
            missing[user] -= 1
            if not missing[user]:
                found.append(user[0])
    return known


def _left_recursive(rules: Rules, nullable: set[int]) -> int | None:
    """A rule that comes back to itself before a byte is read, with something left to do after it. A rule that ends
    with itself after nothing, such as ``("")*`` makes, goes in a circle and is harmless."""
    component = _components([sorted({to for to, _ in _begins(rules, n, nullable)}) for n in range(len(rules.names))])
    for rule in range(len(rules.names)):
        for to, has_rest in _begins(rules, rule, nullable):
            if has_rest and component[to] == component[rule]:
                return rule
    return None


def _begins(rules: Rules, rule: int, nullable: set[int]) -> Iterator[tuple[int, bool]]:
    """The rules that ``rule`` may begin with, and whether something follows them."""
    for alternative in rules.alternatives[rule]:
        for at, symbol in enumerate(alternative):
            if symbol < 0:
                break
            yield symbol, at + 1 < len(alternative)
            if symbol not in nullable:
                break


def _components(edges: list[list[int]]) -> list[int]:
    """Strongly connected components (Tarjan 1972, without recursion): nodes of one have one number."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    component = [-1] * len(edges)
    stack: list[int] = []
    for start in range(len(edges)):
        work = [(start, 0)] if start not in order else []
        while work:
            node, at = work.pop()
            if at == 0:
                order[node] = low[node] = len(order)
                stack.append(node)
            elif component[edges[node][at - 1]] < 0:
                low[node] = min(low[node], low[edges[node][at - 1]])
            while at < len(edges[node]) and edges[node][at] in order:
                to = edges[node][at]
                at += 1
                if component[to] < 0:
                    low[node] = min(low[node], order[to])
            if at < len(edges[node]):
                work += [(node, at + 1), (edges[node][at], 0)]
            elif low[node] == order[node]:
                while True:
                    member = stack.pop()
                    component[member] = node
                    if member == node:
                        break
    return component
