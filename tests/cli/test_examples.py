"""Every example can be followed: what it uses is explained where it stands.

The rule: a flag of an example is spelt as the help of its command spells it. Where a page lists flags of the command
(its own help, short or long) the flag is on that very page; pages that list none (the program's help, a group's, the
documents) rely on ``COMMAND --help``, to which they lead.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec.cli.help import help_on
from localspec.options import COMMANDS, all_options
from localspec.options.commands import GROUPS, TOPICS, Command
from localspec.options.option import Option, spellings
from localspec.options.parse import parse
from tests.test_docs import ROOT, commands

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
OWN = [(name, short) for name in COMMANDS for short in (True, False)]
OTHERS = ((), ("help",), *((name,) for name in (*GROUPS, *TOPICS)))


def examples(text: str) -> Iterator[list[str]]:
    """The lines of a help that are commands, as words without the program's name."""
    for line in re.findall(r"^    (localspec .*)$", text, re.MULTILINE):
        yield shlex.split(line)[1:]


def split(words: list[str]) -> tuple[Command, list[str]] | None:
    """The command and its arguments; ``None`` where words ask for help or the version."""
    if words[:1] == ["help"] or words[0].startswith("-"):
        return None
    size = 2 if words[0] in GROUPS else 1
    if words[size - 1 : size] in (["-h"], ["--help"]) or words[size:] in (["-h"], ["--help"]):
        return None
    return COMMANDS[" ".join(words[:size])], words[size:]


def flags(command: Command, arguments: list[str]) -> list[str]:
    """The flags among the arguments, as they are spelt there."""
    known: dict[str, Option] = {flag: one for one in command.options for flag, _ in spellings(one)}
    found, words = [], iter(arguments)
    for word in words:
        flag, equals, _ = word.partition("=")
        if flag in known:
            found.append(flag)
            if known[flag].kind is not bool and not equals:
                next(words)
    return found


def listed(text: str) -> set[str]:
    """The flags that a help explains: those that a line begins with."""
    lines = re.findall(r"^  (-.*?)(?:  |$)", text, re.MULTILINE)
    return {word.rstrip(",") for line in lines for word in line.split() if word.startswith("-")}


def unexplained(words: list[str], page: str | None = None) -> list[str]:
    """Flags of a command line that its help does not list, nor ``page``, if that is one."""
    parts = split(words)
    if parts is None:
        return []
    command, arguments = parts
    parse(arguments, command)  # raises `UsageError` for what is no flag of this command
    known = listed(page if page is not None else help_on(command.name.split()))
    return [flag for flag in flags(command, arguments) if flag not in known]


@pytest.mark.parametrize(("name", "short"), OWN, ids=lambda value: str(value))
def test_a_help_explains_the_flags_of_its_examples(name: str, short: bool) -> None:
    page = help_on(name.split(), short=short)
    found = list(examples(page))
    assert [words[: len(name.split())] for words in found] == [name.split()] * len(COMMANDS[name].examples)
    assert [(words, missing) for words in found if (missing := unexplained(words, page))] == []


@pytest.mark.parametrize("words", OTHERS, ids=lambda words: " ".join(words) or "localspec")
def test_other_pages_use_flags_that_the_help_of_the_command_explains(words: tuple[str, ...]) -> None:
    page = help_on(words)
    found = list(examples(page))
    assert found or words[:1] not in ((), ("help",), *((name,) for name in GROUPS))
    assert [(line, missing) for line in found if (missing := unexplained(line))] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_documents_use_flags_that_the_help_explains(page: Path) -> None:
    starts = {*(name.split()[0] for name in COMMANDS)}
    missing = []
    for words in commands(page):
        for at in (i for i, word in enumerate(words[:-1]) if word == "localspec" and words[i + 1] in starts):
            line = words[at + 1 :]
            if line[0] not in GROUPS or " ".join(line[:2]) in COMMANDS:
                missing += [(line, flag) for flag in unexplained(line)]
    assert missing == []


def test_the_rule_can_fail() -> None:
    short = help_on(["chat"], short=True)
    assert unexplained(["chat", "--top-k", "3"], short) == ["--top-k"]
    assert unexplained(["chat", "--n-predict", "3"]) == ["--n-predict"]  # another spelling than the help's
    assert unexplained(["chat", "-p", "--top-k"], short) == []  # a text
    assert len(listed(help_on(["chat"]))) > len(all_options()) / 2
