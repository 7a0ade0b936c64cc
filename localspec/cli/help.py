"""Help as plain text, in the width of the terminal. Nothing here needs more than the tables."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterable, Iterator, Sequence
from textwrap import TextWrapper
from typing import Any

from localspec.cli import topics
from localspec.cli.topics import Block, Code, Flags, Heading, Table
from localspec.errors import UsageError
from localspec.options.commands import COMMANDS, GROUPS, TOPICS, Command, Example
from localspec.options.option import Option
from localspec.options.suggest import did_you_mean
from localspec.options.tables.groups import grouped

ABOUT = "Chat and completions from GGUF models, with guesses ahead that never change the text."
WIDEST = 110
#: The column of explanations starts here at most; longer names get a line of their own.
MARGIN = 30
HELP_FLAG = ("-h, --help", "Show this and leave.")
HELP_FLAGS = (("-h", "Show the common flags and leave."), ("--help", "Show all flags and leave."))
ROOT_FLAGS = (
    HELP_FLAG,
    ("-V, --version", "Show the version and leave."),
    ("--install-completion [SHELL]", "Make tab complete commands and flags in this shell, or in bash, zsh or fish."),
    ("--show-completion [SHELL]", "Print the script for that."),
)
ROOT_EXAMPLES = (
    Example("Chat with the demo model", "localspec chat"),
    Example("Chat with a model from Hugging Face", "localspec chat -hf ggml-org/gemma-3-1b-it-GGUF:Q4_K_M"),
    Example("A draft model that guesses ahead", "localspec chat -m big.gguf -md small.gguf"),
    Example("One answer, for a script", "localspec complete -p 'Once upon a time' -n 64 --json"),
    Example("All flags, with their environment variables", "localspec help flags"),
)


def help_on(words: Sequence[str], *, short: bool = False) -> str:
    """Help on a command, a group or a topic; on everything if nothing is named. ``short``: of a command with many flags
    only the common ones.

    Raises:
        UsageError: there is no help on that.
    """
    name, width = " ".join(words), _width()
    if not name:
        return _join(_root(width))
    if name in COMMANDS:
        return _join(_command(COMMANDS[name], width, short=short))
    if name in GROUPS:
        return _join(_group(name, width))
    if name == "help":
        return _join(_help(width))
    pages = {"flags": topics.flags, "keys": topics.keys, "config": topics.config, "exit-codes": topics.exit_codes}
    if name not in pages:
        known = (*TOPICS, *COMMANDS, *GROUPS)
        raise UsageError(f"no help on {name}", hint=f"{did_you_mean(name, known)}There are {', '.join(known)}.")
    return _join(line for block in pages[name]() for line in _block(block, width))


def _width() -> int:
    return max(min(shutil.get_terminal_size().columns, WIDEST), 20)


def _join(lines: Iterable[str]) -> str:
    return "\n".join(line.rstrip() for line in lines) + "\n"


# Commands


def _root(width: int) -> Iterator[str]:
    yield "Usage: localspec COMMAND [OPTIONS]"
    yield from _paragraph(ABOUT, width)
    alone = [(name, command.summary) for name, command in COMMANDS.items() if " " not in name]
    more = [*GROUPS.items(), ("help [TOPIC]", f"A command, or one of {', '.join(TOPICS)}.")]
    yield from _section("Commands", _columns([*alone, *more], width))
    yield from _section("Options", _columns(ROOT_FLAGS, width))
    yield from _examples(ROOT_EXAMPLES, width)


def _group(name: str, width: int) -> Iterator[str]:
    yield f"Usage: localspec {name} COMMAND [OPTIONS]"
    yield from _paragraph(GROUPS[name], width)
    members = [command for command in COMMANDS.values() if command.name.startswith(f"{name} ")]
    rows = [(_usage(command).removeprefix(f"{name} "), command.summary) for command in members]
    yield from _section("Commands", _columns(rows, width))
    yield from _section("Options", _columns([HELP_FLAG], width))
    yield from _examples([example for command in members for example in command.examples[:1]], width)


def _help(width: int) -> Iterator[str]:
    yield "Usage: localspec help [TOPIC]"
    yield from _paragraph("Explain a command or a topic.", width)
    yield from _section("Topics", _columns(TOPICS.items(), width))
    rows = [*GROUPS.items(), *((name, command.summary) for name, command in COMMANDS.items())]
    yield from _section("Commands", _columns(rows, width))
    yield from _section("Options", _columns([HELP_FLAG], width))
    yield from _examples([Example("All flags", "localspec help flags")], width)


def _command(command: Command, width: int, *, short: bool) -> Iterator[str]:
    yield f"Usage: localspec {_usage(command)} [OPTIONS]"
    yield from _paragraph(command.summary, width)
    if command.about:
        yield from _paragraph(command.about, width)
    if command.arguments:
        yield from _section("Arguments", _columns([(o.metavar, o.help) for o in command.arguments], width))
    flags = {option.name: option for option in command.options if option.flags}
    short = short and bool(command.common)
    groups = {"Common": [flags[name] for name in command.common]} if short else grouped(flags.values())
    for group, options in groups.items():
        yield from _section(group, _columns([(spelt(option), explained(option)) for option in options], width))
    yield from _section("Help", _columns(HELP_FLAGS if command.common else [HELP_FLAG], width))
    yield from _examples(command.examples, width)
    if short:
        yield from _paragraph(f"All {len(flags)} flags: localspec {command.name} --help.", width)
    elif command.common:
        yield from _paragraph(
            "Every flag is a key of a configuration file and an environment variable, too: see localspec help config."
            " localspec help flags shows these and other spellings.",
            width,
        )


def _usage(command: Command) -> str:
    return " ".join([command.name, *(option.metavar for option in command.arguments)])


def spelt(option: Option) -> str:
    """``-n, --predict N``."""
    flags = ", ".join((*option.flags, *option.negations[-1:]))
    return f"{flags} {option.metavar}".rstrip()


def explained(option: Option) -> str:
    """What it does, what it takes, what it is without."""
    parts = [option.help]
    if option.choices and not all(choice in option.help for choice in option.choices):
        parts.append(f"One of {', '.join(option.choices)}.")
    if option.default is not False and option.default not in (None, (), ""):
        parts.append(f"(default {_default(option.default)})")
    return " ".join(parts)


def _default(value: Any) -> str:
    if isinstance(value, tuple):
        return shlex.join(value)
    return "on" if value is True else str(value)


def _examples(examples: Iterable[Example], width: int) -> Iterator[str]:
    yield from ("", "Examples")
    for example in examples:
        yield from _wrapped(f"{example.what}:", width, "  ", "  ")
        yield f"    {example.line}"


# Pages


def _block(block: Block, width: int) -> Iterator[str]:
    match block:
        case str():
            yield from _paragraph(_unmarked(block), width)
        case Heading(text):
            yield from ("", _unmarked(text))
        case Code(text):
            yield ""
            yield from (f"    {line}" for line in text.rstrip("\n").split("\n"))
        case Flags(options):
            for option in options:
                yield from _entry(option, width)
        case Table(_, rows):
            yield ""
            cells = [tuple(_unmarked(cell) for cell in row) for row in rows]
            yield from _columns([("  ".join(row[:-1]), row[-1]) for row in cells], width)


def _entry(option: Option, width: int) -> Iterator[str]:
    yield f"  {spelt(option)}"
    also = [*option.aliases, *option.negations[:-1]]
    lines = [explained(option)]
    lines += [f"also: {', '.join(also)}"] if also else []
    lines += [f"formerly: {', '.join(option.former)}"] if option.former else []
    lines += [f"env: {', '.join(option.variables)}"]
    for line in lines:
        yield from _wrapped(line, width, " " * 6, " " * 8)


def _unmarked(text: str) -> str:
    """Without Markdown."""
    return re.sub(r"(?<!\*)\*(\w+)\*", r"\1", text).replace("`", "")


# Lines


class _Wrapper(TextWrapper):
    """Breaks at blanks, and within lists such as a;b;c."""

    wordsep_simple_re = re.compile(r"([ \n]+)|(?<=;)(?=\w)")


def _wrapped(text: str, width: int, first: str = "", others: str = "") -> list[str]:
    return _Wrapper(width, initial_indent=first, subsequent_indent=others, break_on_hyphens=False).wrap(text)


def _paragraph(text: str, width: int) -> Iterator[str]:
    yield ""
    yield from _wrapped(text, width)


def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    yield ""
    yield title
    yield from lines


def _columns(rows: Iterable[tuple[str, str]], width: int) -> Iterator[str]:
    """Names and explanations side by side; on narrow terminals one under the other."""
    rows = list(rows)
    start = min(max(len(name) for name, _ in rows) + 4, MARGIN) if width >= 60 else 6
    for name, text in rows:
        lines = _wrapped(text, width - start) or [""]
        if len(name) + 4 > start:
            yield f"  {name}"
        else:
            yield f"  {name:<{start - 2}}{lines.pop(0)}"
        yield from (" " * start + line for line in lines)
