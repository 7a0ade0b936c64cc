#!/usr/bin/env python3
"""Writes the pages of docs/ that repeat what the code says: ``scripts/gen_docs.py``.

A test fails while one of them is stale.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

from localspec import errors
from localspec.cli.app import CHAT_OPTIONS, COMPLETE_OPTIONS
from localspec.errors import ExitCode
from localspec.options import GENERATION_OPTIONS, Option

DOCS = Path(__file__).resolve().parent.parent / "docs"
NOTE = "<!-- Made by scripts/gen_docs.py: do not edit. -->"

MEANINGS = {
    ExitCode.OK: "All went well. A reader that closes the pipe early, such as `head`, is no failure.",
    ExitCode.RUNTIME: "The engine could not finish the answer, or its process died.",
    ExitCode.USAGE: "A flag, a request or an input that makes no sense; nothing was computed.",
    ExitCode.MODEL: "A model that is missing or damaged, does not fit its draft model, or cannot do what is asked.",
    ExitCode.NETWORK: "A hub or a server does not answer as it should. No command uses the network yet.",
    ExitCode.PARTIAL: "Some rows of a batch failed. No command returns it yet.",
    ExitCode.MEMORY: "Weights, cache or buffers do not fit into memory.",
    ExitCode.INTERRUPTED: "Ctrl-c (SIGINT).",
    ExitCode.TERMINATED: "Asked to end from outside (SIGTERM).",
}


def pages() -> dict[Path, str]:
    """File → what it should hold."""
    return {DOCS / "flags.md": flags_page(), DOCS / "exit-codes.md": exit_codes_page()}


def flags_page() -> str:
    groups: dict[str, list[Option]] = {}
    for option in GENERATION_OPTIONS:
        groups.setdefault(option.group, []).append(option)
    parts = [
        "# Flags",
        NOTE,
        "`localspec complete` and `localspec chat` share most flags. Names are llama.cpp's. `-h` shows the same list.",
    ]
    for group, options in groups.items():
        parts += [f"## {group}", options_table(options)]
    parts += ["## Only `complete`", options_table(COMPLETE_OPTIONS)]
    parts += ["## Only `chat`", options_table(CHAT_OPTIONS)]
    return "\n\n".join(parts) + "\n"


def options_table(options: Iterable[Option]) -> str:
    rows = ["| flag | also | default | meaning |", "| --- | --- | --- | --- |"]
    for option in options:
        metavar = f" {option.metavar}" if option.metavar else ""
        *short, name = option.flags
        flags = ", ".join(f"`{flag}`" for flag in [*short, f"{name}{metavar}"])
        also = ", ".join(f"`{flag}`" for flag in option.aliases)
        rows.append(f"| {flags} | {also} | {shown_default(option)} | {meaning(option)} |")
    return "\n".join(rows)


def shown_default(option: Option) -> str:
    if option.kind is bool:
        return "on" if option.default else "off"
    return "" if option.default in (None, (), "") else f"`{option.default}`"


def meaning(option: Option) -> str:
    parts = [option.help]
    if option.choices and not all(choice in option.help for choice in option.choices):
        parts.append(f"One of {', '.join(option.choices)}.")
    return " ".join(parts).replace("|", "\\|")


def exit_codes_page() -> str:
    rows = ["| code | name | when |", "| ---: | --- | --- |"]
    rows += [f"| {code.value} | `{code.name}` | {MEANINGS[code]} |" for code in ExitCode]
    return (
        "\n\n".join(
            [
                "# Exit codes",
                NOTE,
                "Stdout holds the model's text or JSON and nothing else. A failure is one line on stderr: what went"
                " wrong, why, and what to do. `--debug` shows the traceback instead.",
                "\n".join(rows),
                "## Errors",
                "The library raises these (`localspec.errors`); the number is the exit code of a command that ends"
                " with one.",
                f"```text\n{error_tree()}\n```",
            ]
        )
        + "\n"
    )


def error_tree() -> str:
    """Every class of error under its parent, with its code and what its documentation says."""
    lines = [(errors.LocalspecError.__name__, errors.LocalspecError)]
    lines += branches(errors.LocalspecError, "")
    said = tree_words()
    width = max(len(text) for text, _ in lines) + 1
    return "\n".join(f"{text:<{width}} {kind.exit_code.value}  {said[kind.__name__]}" for text, kind in lines)


def branches(parent: type[errors.LocalspecError], indent: str) -> list[tuple[str, type[errors.LocalspecError]]]:
    kinds: Sequence[type[errors.LocalspecError]] = [
        kind for kind in parent.__subclasses__() if kind.__module__ == errors.__name__
    ]
    lines = []
    for kind in kinds:
        last = kind is kinds[-1]
        lines.append((f"{indent}{'└── ' if last else '├── '}{kind.__name__}", kind))
        lines += branches(kind, indent + ("    " if last else "│   "))
    return lines


def tree_words() -> dict[str, str]:
    """What the module's own tree says of each class."""
    words = {}
    for line in textwrap.dedent(inspect.getdoc(errors) or "").splitlines():
        parts = line.lstrip("│├└─ ").split(maxsplit=2)
        if len(parts) == 3 and parts[1].isdigit():
            words[parts[0]] = parts[2]
    return words


def main() -> None:
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
