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
from localspec.cli import topics
from localspec.cli.help import explained
from localspec.cli.repl import keys
from localspec.cli.topics import Block, Code, Flags, Heading, Table
from localspec.options import Option
from localspec.tui import actions

DOCS = Path(__file__).resolve().parent.parent / "docs"
SCREEN = (
    "At a terminal `localspec chat` draws on the whole screen, unless it is told not to (`--no-tui`, `--simple-io`, or"
    " `tui = false` in the configuration file): it is there before the model is loaded, messages may be"
    " written while an answer comes, and wait their turn, and Markdown is laid out. Commands are the same. Where the"
    " program ends, the conversation is kept in a file, and a line says how to go on with it.\n\n"
    "What is typed before the screen is there, while the program starts, is not lost: it stands in the editor when the"
    " first frame does, and Enter typed there sends it, to be answered as soon as a model is loaded. In the first"
    " fractions of a second nobody can tell a paste from lines that are typed: all of it is one message then, and only"
    " an Enter at its end sends it.\n\n"
    "A model that has to be downloaded first (`-hf`) is: the line at the bottom tells bytes, rate and the time that is"
    " left, and messages may be written meanwhile. Escape stops the download within a moment, or where nothing arrives"
    " any more when the connection times out; what arrived is kept, and F5 goes on from there.\n\n"
    "F2, F3 and F4 open a panel beside the conversation, and close it again; so does escape in a panel. F6 goes"
    " to it and back. On a screen of less than 90 columns the statistics stand above the conversation, the others"
    " in its place until a message is sent. What stands in a field of F2 counts from the next answer on. F4 marks"
    " every token that was guessed with the sign of its drafter; the line below tells how likely drafter and model"
    " found the token under the cursor, and what else might have stood there. F3 and F4 show trees and the model's"
    " probabilities of answers that began while one of them was open, and `/trace FILE.jsonl` writes them for"
    " other programs. F7 and F8 list models: those used lately first, then the demo, the cache, and what lies"
    " beside the model in use; and of each whether it fits into memory and whether it can guess for this model.\n\n"
    "Step mode (alt+t, or `/step on`) shows speculation happen: an answer waits before every verify step, and the"
    " status line says for which key. alt+n makes exactly one step. A line below the answer tells what was guessed in"
    " it (✓ held, ✗ not drawn, → the target's own token); F3 draws the tree, F4 marks the tokens. alt+r goes on to the"
    " end of the answer, escape stops it. It is the engine that waits, and it computes nothing meanwhile; text and"
    " seed are as ever, and the waiting counts for no speed. Where the controller finds that guessing does not pay,"
    " there is little to see: `/spec fixed` guesses in every step."
)
NOTE = "<!-- Made by scripts/gen_docs.py: do not edit. -->"


def pages() -> dict[Path, str]:
    """File → what it should hold."""
    return {
        DOCS / "flags.md": page("Flags", topics.flags()),
        DOCS / "config.md": page("Configuration", topics.config()),
        DOCS / "exit-codes.md": page("Exit codes", exit_codes()),
        DOCS / "chat.md": page("Chat", [keys.reference(), Heading("The full screen"), SCREEN, actions.reference()]),
    }


def page(title: str, blocks: Iterable[Block]) -> str:
    return "\n\n".join([f"# {title}", NOTE, *map(markdown, blocks)]) + "\n"


def markdown(block: Block) -> str:
    match block:
        case str():
            return block
        case Heading(text):
            return f"## {text}"
        case Code(text, language):
            return f"```{language}\n{text.strip()}\n```"
        case Flags(options):
            return table(("flag", "also", "environment", "meaning"), map(flag_row, options))
        case Table(head, rows):
            return table(head, rows)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def flag_row(option: Option) -> tuple[str, str, str, str]:
    *short, name = option.flags
    flags = code([*short, f"{name} {option.metavar}".rstrip(), *option.negations[-1:]])
    also = code((*option.aliases, *option.negations[:-1]))
    if option.former:
        also = f"{also}{'; ' if also else ''}formerly {code(option.former)}"
    return flags, also, code(option.variables), explained(option)


def code(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def exit_codes() -> list[Block]:
    return [
        *topics.exit_codes(),
        Heading("Errors"),
        "The library raises these (`localspec.errors`); the number is the exit code of a command that ends with one.",
        Code(error_tree()),
    ]


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
