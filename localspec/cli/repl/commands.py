"""The one registry of slash commands: completion, /help and the documentation read it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from localspec.cli.repl import engine_commands as engine
from localspec.cli.repl import talk_commands as talk
from localspec.cli.repl.front import Front
from localspec.cli.repl.keys import INTRODUCTION, KEYS, REST
from localspec.errors import UsageError
from localspec.options.suggest import did_you_mean

#: What an argument is completed with.
Kind = Literal["", "path", "setting", "command", "switch", "spec", "model", "draft", "system"]


@dataclass(frozen=True, slots=True)
class Command:
    """One slash command. ``run`` gets the front end and everything after the name."""

    name: str
    args: str
    help: str
    run: Callable[[Front, str], None]
    aliases: tuple[str, ...] = ()
    completes: Kind = ""


def _help(front: Front, argument: str) -> None:
    if not argument:
        front.say("\n".join([*_rows((f"/{one.name} {one.args}".strip(), one.help) for one in COMMANDS), *_key_rows()]))
        return
    command = find(argument.removeprefix("/"))
    also = f" (also {', '.join(f'/{alias}' for alias in command.aliases)})" if command.aliases else ""
    front.say(f"/{command.name} {command.args}".strip() + f"{also}: {command.help}")


def _key_rows() -> list[str]:
    return ["", *_rows(KEYS), "", "A message that begins with a slash: write two, as in //etc is a folder."]


def _rows(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Two columns, 80 wide."""
    from textwrap import wrap

    rows = []
    for left, right in pairs:
        first, *rest = wrap(right, 80 - 22)
        rows += [f"{left:<21} {first}" if len(left) < 22 else f"{left}\n{'':22}{first}"]
        rows += [f"{'':22}{line}" for line in rest]
    return rows


COMMANDS: tuple[Command, ...] = (
    Command("help", "[COMMAND]", "Lists the commands, or explains one.", _help, ("?",), "command"),
    Command("exit", "", "Leaves.", talk.leave, ("quit", "bye")),
    Command("regen", "", "Answers the last question again.", talk.regenerate, ("regenerate",)),
    Command("edit", "[N]", "Changes the last question, or the N-th last, and asks it; what followed goes.", talk.edit),
    Command("undo", "", "Takes back the attached files, or else the last question and its answer.", talk.undo),
    Command("clear", "", "Starts a new conversation; the system message stays.", talk.clear, ("new",)),
    Command(
        "read",
        "FILE",
        "Attaches a file to the next message; without a name, lists what waits.",
        talk.read,
        completes="path",
    ),
    Command(
        "glob", "PATTERN", "Attaches all files that match; ** goes through folders.", talk.globbed, completes="path"
    ),
    Command("system", "[TEXT|off]", "Shows or changes the system message.", talk.system, completes="system"),
    Command(
        "set",
        "KEY VALUE",
        "Changes a setting, by the name of its flag; default = as the chat was started.",
        engine.set_,
        completes="setting",
    ),
    Command("params", "", "Lists the settings.", engine.params, ("parameters",)),
    Command("stats", "", "Speed and acceptance of the last answer and of the session.", engine.stats),
    Command(
        "spec",
        "[on|off|auto|fixed|type LIST|KEY VALUE]",
        "Shows or changes what is guessed ahead, and how much.",
        engine.spec,
        completes="spec",
    ),
    Command(
        "draft",
        "[FILE|demo|USER/REPO:QUANT|off]",
        "Shows, changes or removes the draft model; the conversation stays.",
        engine.draft,
        completes="draft",
    ),
    Command(
        "model",
        "[FILE|demo|USER/REPO:QUANT]",
        "Shows or changes the model; the conversation stays.",
        engine.model,
        completes="model",
    ),
    Command("save", "FILE", "Saves the conversation and its settings, for /load.", talk.save, completes="path"),
    Command("load", "FILE", "Takes up a saved conversation in place of this one.", talk.load, completes="path"),
    Command(
        "export",
        "FILE.md|FILE.json",
        "Writes the conversation to read (md) or for other programs (json).",
        talk.export_,
        completes="path",
    ),
    Command("copy", "[N]", "Puts the last answer, or the N-th last, into the clipboard.", talk.copy),
    Command(
        "multiline",
        "[on|off]",
        "Enter begins a new line; a line that ends in / or \\, or ctrl-d, sends.",
        talk.multiline,
        ("mli",),
        "switch",
    ),
    Command(
        "think",
        "[on|off|auto]",
        "Whether the model may think before it answers, if it can.",
        engine.think,
        ("reasoning",),
        "switch",
    ),
    Command("ctx", "", "How much of the context is used.", talk.context, ("context",)),
    Command("tokens", "TEXT", "Counts the tokens of a text.", talk.tokens),
)


def names() -> list[str]:
    """All names and aliases."""
    return [name for command in COMMANDS for name in (command.name, *command.aliases)]


def find(name: str) -> Command:
    """The command of this name or alias.

    Raises:
        UsageError: there is none; with the closest names, and how to send such a message after all.
    """
    for command in COMMANDS:
        if name in (command.name, *command.aliases):
            return command
    guess = did_you_mean(f"/{name}", [f"/{one}" for one in names()]) or "/help lists the commands. "
    raise UsageError(
        f"there is no command /{name:.40}", hint=f"{guess}A message that begins so is written //{name:.40}"
    )


def reference() -> str:
    """The page about the chat, as Markdown: commands and keys as they are registered."""
    rows = ["| command | also | meaning |", "| --- | --- | --- |"]
    for one in COMMANDS:
        usage = f"/{one.name} {one.args}".strip().replace("|", "\\|")
        also = ", ".join(f"`/{alias}`" for alias in one.aliases)
        rows.append(f"| `{usage}` | {also} | {one.help} |")
    keys = ["| key | meaning |", "| --- | --- |", *(f"| {key} | {meaning} |" for key, meaning in KEYS)]
    return "\n".join([INTRODUCTION, "", "## Commands", "", *rows, "", "## Keys", "", *keys, "", REST])
