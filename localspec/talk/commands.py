"""The one registry of slash commands: completion, /help and the documentation read it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from textwrap import wrap
from typing import Literal

from localspec.errors import UsageError
from localspec.options import Option
from localspec.options.suggest import closest
from localspec.talk import engine_commands as engine
from localspec.talk import session_commands as saved
from localspec.talk import settings
from localspec.talk import talk_commands as talk
from localspec.talk.far import check_here
from localspec.talk.front import Front
from localspec.text.layout import flow, table

#: The topic of /help that is no command.
ABOUT_KEYS = "keys"
LEFT = 23  # columns of a command or a key
OTHER_MODEL = "A server has its models: --server-model NAME picks one of several."

#: What an argument is completed with.
Kind = Literal["", "path", "setting", "help", "switch", "spec", "model", "draft", "system", "session", "preset"]


@dataclass(frozen=True, slots=True)
class Command:
    """One slash command. ``brief`` is what it does in two or three words; ``run`` gets the front end and everything
    after the name. ``here``: with something after it, it needs an engine here; what to do where a server answers."""

    name: str
    args: str
    brief: str
    help: str
    run: Callable[[Front, str], None]
    aliases: tuple[str, ...] = ()
    completes: Kind = ""
    here: str = ""

    @property
    def usage(self) -> str:
        return f"/{self.name} {self.args}".strip()


@dataclass(frozen=True, slots=True)
class Group:
    """Commands about one thing."""

    name: str
    commands: tuple[Command, ...]


def _help(front: Front, argument: str) -> None:
    topic, width = argument.removeprefix("/"), front.columns
    group = next((one for one in GROUPS if one.name == topic), None)
    setting = settings.named(topic, settings.settable(front.chat.values))
    if not topic:
        lines = _overview(front.keys_in_brief, width)
    elif topic == ABOUT_KEYS:
        lines = table(front.keys, width, left=LEFT)
    elif group is not None:
        lines = table(((one.usage, one.help) for one in group.commands), width, left=LEFT)
    elif setting is not None and topic not in names():
        now = settings.shown(front.chat.values[setting.name])
        lines = wrap(f"{setting.word} is a setting, now {now}; /set {setting.word} VALUE. {setting.help}", width)
    else:
        lines = wrap(_explained(find(topic)), width)
    front.say("\n".join(lines))


def _explained(command: Command) -> str:
    also = f" (also {', '.join(f'/{alias}' for alias in command.aliases)})" if command.aliases else ""
    return f"{command.usage}{also}: {command.help}"


def _overview(keys: Iterable[str], width: int) -> list[str]:
    """All commands, on a small screen too."""
    rows = {group.name: [f"/{one.name} {one.brief}" for one in group.commands] for group in GROUPS}
    rows[ABOUT_KEYS] = [*keys]
    lines = [line for name, parts in rows.items() for line in flow(f"{name:<10}", parts, width)]
    return [*lines, *wrap("/help undo, /help files or /help keys says more of it", width)]


TALK = (
    Command("help", "[COMMAND|GROUP|keys]", "this list", "Lists all there is, or explains it.", _help, ("?",), "help"),
    Command(
        "regen",
        "[N]",
        "answers again",
        "Answers the last question again, or the N-th last; what followed stays with the old answer.",
        talk.regenerate,
        ("regenerate",),
    ),
    Command(
        "edit",
        "[N]",
        "changes a question",
        "Changes the last question, or the N-th last, and asks it; what followed goes.",
        talk.edit,
    ),
    Command(
        "undo",
        "[N]",
        "takes back",
        "Takes back the attached files, or else the last question and its answer, or N; arrow up finds the text.",
        talk.undo,
    ),
    Command("clear", "", "begins anew", "Starts a new conversation; the system message stays.", talk.clear, ("new",)),
    Command("copy", "[N]", "to clipboard", "Puts the last answer, or the N-th last, into the clipboard.", talk.copy),
    Command(
        "multiline",
        "[on|off]",
        "enter is a new line",
        "Enter begins a new line; a line that ends in / or \\, or ctrl-d, sends.",
        talk.multiline,
        ("mli",),
        "switch",
    ),
    Command("exit", "", "leaves", "Leaves.", talk.leave, ("quit", "bye")),
)

FILES = (
    Command(
        "read",
        "FILE",
        "attaches a file",
        "Attaches a file to the next message; without a name, lists what waits.",
        talk.read,
        completes="path",
    ),
    Command(
        "glob",
        "PATTERN",
        "attaches many",
        "Attaches all files that match; ** goes through folders.",
        talk.globbed,
        completes="path",
    ),
    Command(
        "save",
        "FILE",
        "keeps this chat",
        "Saves the conversation and its settings, for /load.",
        talk.save,
        completes="path",
    ),
    Command(
        "load",
        "FILE",
        "goes on with one",
        "Takes up a saved conversation in place of this one, with its settings; those given on the command line stay.",
        talk.load,
        completes="path",
    ),
    Command(
        "export",
        "FILE.md|.html|.json|.jsonl",
        "writes it to read",
        "Writes the conversation to read (md), for a browser or to print (html), for other programs (json), or with all"
        " its branches for llama.cpp's web UI and /import (jsonl).",
        talk.export_,
        completes="path",
    ),
    Command(
        "import",
        "FILE",
        "from others",
        "Saves the conversations of a file here, with their branches: what llama.cpp's web UI exports, or a list of"
        " messages in JSON.",
        saved.import_,
        completes="path",
    ),
)

SESSIONS = (
    Command(
        "sessions",
        "[TEXT]",
        "lists, searches",
        "Lists the saved conversations, * this one and ^ the pinned; with a text, finds it in all of them.",
        saved.sessions,
    ),
    Command(
        "session",
        "[NAME]",
        "opens one",
        "Goes on with a saved conversation, by its title or id or the beginning of one; this one stays saved.",
        saved.session,
        completes="session",
    ),
    Command("rename", "TITLE", "names this one", "Gives this conversation another title.", saved.rename),
    Command(
        "siblings",
        "[N]",
        "versions",
        "Lists what /edit and /regen have left of the last exchange, or of the N-th last: its other versions.",
        saved.siblings,
    ),
    Command(
        "sibling",
        "M [N]",
        "goes to one",
        "Goes on with the M-th version of the last exchange, or of the N-th last, and with what followed it.",
        saved.sibling,
    ),
    Command(
        "delete",
        "NAME|undo|purge",
        "removes one",
        "Deletes a saved conversation; undo brings the last one back, purge removes all that are deleted, for good.",
        saved.delete,
        completes="session",
    ),
)

MODELS = (
    Command(
        "model",
        "[FILE|demo|USER/REPO:QUANT]",
        "changes it",
        "Shows or changes the model; the conversation stays.",
        engine.model,
        completes="model",
        here=OTHER_MODEL,
    ),
    Command(
        "draft",
        "[FILE|demo|USER/REPO:QUANT|off]",
        "drafter",
        "Shows, changes or removes the draft model; the conversation stays.",
        engine.draft,
        completes="draft",
        here=OTHER_MODEL,
    ),
    Command(
        "spec",
        "[on|off|auto|fixed|type LIST|KEY VALUE]",
        "guesses",
        "Shows or changes what is guessed ahead, and how much. KEY is one of"
        f" {', '.join(engine.SPEC_KEYS)}; for example /spec n-max 5.",
        engine.spec,
        completes="spec",
    ),
    Command(
        "step",
        "[on|off]",
        "key by key",
        "On the full screen: answers wait for a key before every verify step, to see what of the guesses holds.",
        engine.step,
        completes="switch",
        here=engine.OWN_PACE,
    ),
    Command(
        "stats",
        "",
        "speed and guesses",
        "Speed and acceptance of the last answer and of the session, and how each drafter stands.",
        engine.stats,
    ),
    Command(
        "trace",
        "FILE.jsonl|on|off",
        "step by step",
        "Writes what was guessed in the last answer and what of it held, step by step: a JSON object a line. on: of the"
        " answers to come the trees of guesses, too.",
        talk.trace,
        completes="path",
    ),
)

SETTINGS = (
    Command(
        "set",
        "KEY VALUE",
        "changes one",
        "Changes a setting, by the name of its flag; default = as the chat was started.",
        engine.set_,
        completes="setting",
    ),
    Command(
        "preset",
        "[NAME|save NAME|delete NAME]",
        "named sets",
        "Lists the presets, sets all settings as one says, or keeps how text is drawn, guessed and cut under a name.",
        engine.preset,
        completes="preset",
    ),
    Command("params", "", "lists them", "Lists the settings.", engine.params, ("parameters",)),
    Command(
        "system",
        "[TEXT|off]",
        "the system message",
        "Shows or changes the system message.",
        talk.system,
        completes="system",
    ),
    Command(
        "think",
        "[on|off|auto]",
        "first or not",
        "Whether the model may think before it answers, if it can.",
        engine.think,
        ("reasoning",),
        "switch",
    ),
    Command("ctx", "", "context in use", "How much of the context is used.", talk.context, ("context",)),
    Command("tokens", "TEXT", "counts them", "Counts the tokens of a text.", talk.tokens),
)

GROUPS = (
    Group("talk", TALK),
    Group("saved", SESSIONS),
    Group("files", FILES),
    Group("models", MODELS),
    Group("settings", SETTINGS),
)
COMMANDS: tuple[Command, ...] = tuple(command for group in GROUPS for command in group.commands)


def is_command(message: str) -> bool:
    """Whether it is none for the model. One that begins with two slashes is: with one."""
    return message.startswith("/") and not message.startswith("//")


def as_message(text: str) -> str:
    """How a text is written that is a message in any case."""
    return f"/{text}" if text.startswith("/") else text


def run(front: Front, line: str) -> None:
    """Runs a line that is a command.

    Raises:
        UsageError: there is no such command, or it takes nothing after it.
        LocalspecError: what the command raises.
        Leave: the user wants to go.
    """
    name, _, argument = line[1:].partition(" ")
    if "\n" in name:
        name, _, argument = line[1:].partition("\n")
    name, argument = name.strip(), argument.strip()
    command = find(name, argument, settings.settable(front.chat.values))
    if argument and not command.args:
        raise UsageError(f"/{name} takes nothing after it", hint=f"Write /{name} alone.")
    if command.here and argument:
        check_here(front.chat.engine.info, f"/{name}", command.here)
    command.run(front, argument)


def names() -> list[str]:
    """All names and aliases."""
    return [name for command in COMMANDS for name in (command.name, *command.aliases)]


def topics() -> list[str]:
    """What /help explains."""
    return [*names(), *(group.name for group in GROUPS), ABOUT_KEYS]


def find(name: str, argument: str = "", options: Iterable[Option] = ()) -> Command:
    """The command of this name or alias.

    Raises:
        UsageError: there is none, and how to send such a message after all; with the closest name, or how to set the
            option that is called so.
    """
    for command in COMMANDS:
        if name in (command.name, *command.aliases):
            return command
    message = f"A message that begins so is written //{name:.40}"
    if (setting := settings.named(name, options)) is not None:
        example = f"/set {setting.word} {argument or 'VALUE':.40}"
        raise UsageError(f"there is no command /{name:.40}: it is a setting", hint=f"Use {example}. {message}")
    # Names are short: a stricter bound than elsewhere, or half of the letters would do.
    best = closest(name, names(), alike=0.7)
    guess = f"Did you mean /{best}?" if best else "/help lists the commands."
    raise UsageError(f"there is no command /{name:.40}", hint=f"{guess} {message}")
