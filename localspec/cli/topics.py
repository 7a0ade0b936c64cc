"""What ``localspec help TOPIC`` says; the pages of docs/ are made of the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from localspec.errors import ExitCode
from localspec.options.commands import CHAT_OPTIONS, COMMANDS, COMPLETE_OPTIONS, GENERATION_OPTIONS
from localspec.options.option import OFF, ON, Option
from localspec.options.origin import Level
from localspec.options.tables.groups import grouped


@dataclass(frozen=True, slots=True)
class Heading:
    text: str


@dataclass(frozen=True, slots=True)
class Code:
    """Lines as they are; ``language`` is for highlighting."""

    text: str
    language: str = "text"


@dataclass(frozen=True, slots=True)
class Table:
    """Cells are running text; names in them stand in backticks."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Flags:
    """Options with all that there is to say of them."""

    options: tuple[Option, ...]


Block = str | Heading | Code | Table | Flags

MEANINGS = {
    ExitCode.OK: "All went well. A reader that closes the pipe early, such as `head`, is no failure.",
    ExitCode.RUNTIME: "The engine could not finish the answer, or its process died. `localspec doctor`: a problem"
    " beside those of models and memory.",
    ExitCode.USAGE: "A flag, a setting, a request or an input that makes no sense; nothing was computed.",
    ExitCode.MODEL: "A model that is missing or damaged, does not fit its draft model, or cannot do what is asked.",
    ExitCode.NETWORK: "A hub or a server cannot be reached, or does not answer as it should.",
    ExitCode.PARTIAL: "`localspec batch`: some lines failed; their errors stand in their places.",
    ExitCode.MEMORY: "Weights, cache or buffers do not fit into memory.",
    ExitCode.FAULT: "`localspec verify`: speculation changes a text by more than rounding does.",
    ExitCode.INTERRUPTED: "Ctrl-c (SIGINT).",
    ExitCode.TERMINATED: "Asked to end from outside (SIGTERM).",
}

EXAMPLE = """\
# For every command.
model = "~/models/big.gguf"
gpu-layers = "auto"
temp = 0.7

[profile.code]
model-draft = "~/models/small.gguf"
temp = 0
spec-draft-n-max = 8
samplers = ["top_k", "temperature"]
stop = ["\\n\\n\\n"]

[profile.plain]
spec-type = "none"
show-timings = false
"""


def flags() -> list[Block]:
    """Every flag of the commands that generate text, by group."""
    blocks: list[Block] = [
        "`localspec complete` and `localspec chat` share most flags. Names are llama.cpp's. Every flag is also a key of"
        " a configuration file (without its dashes) and an environment variable; see `localspec help config`. Spellings"
        " under *formerly* are those of older llama.cpp and of other programs: they work, with a note."
    ]
    for group, options in grouped(GENERATION_OPTIONS).items():
        blocks += [Heading(group), Flags(tuple(options))]
    shared = {option.name for option in COMPLETE_OPTIONS} & {option.name for option in CHAT_OPTIONS}
    both = tuple(option for option in COMPLETE_OPTIONS if option.name in shared)
    blocks += [Heading("Both commands"), Flags(both)]
    for name, own in (("complete", COMPLETE_OPTIONS), ("chat", CHAT_OPTIONS)):
        only = tuple(option for option in own if option.name not in shared)
        blocks += [Heading(f"Only `{name}`"), Flags(only)]
    # What is about something else elsewhere is told again there.
    seen = {(option.name, option.group) for option in (*GENERATION_OPTIONS, *COMPLETE_OPTIONS, *CHAT_OPTIONS)}
    for name in dict.fromkeys(command.name.split()[0] for command in COMMANDS.values()):
        mine = [o for c in COMMANDS.values() if c.name.split()[0] == name for o in c.options if o.flags]
        own_only = {(option.name, option.group): option for option in mine if (option.name, option.group) not in seen}
        seen |= own_only.keys()
        if own_only:
            blocks += [Heading(f"Only `{name}`"), Flags(tuple(own_only.values()))]
    return blocks


def config() -> list[Block]:
    ranks = {
        Level.CLI: "The command line.",
        Level.ENV: "The environment: `LOCALSPEC_<FLAG>`, then llama.cpp's `LLAMA_ARG_…` where the flag has one there.",
        Level.USER_PROFILE: "`[profile.NAME]` of the user's file, if `--profile NAME` asks for it.",
        Level.SYSTEM_PROFILE: "`[profile.NAME]` of the system's file.",
        Level.USER_FILE: "The user's file, outside of profiles.",
        Level.SYSTEM_FILE: "The system's file, outside of profiles.",
        Level.TUNED: "What `localspec tune` found best for these models on this machine; `--no-tuned` leaves it out.",
        Level.DEFAULT: "The default.",
    }
    rows = tuple((str(i), text) for i, (_, text) in enumerate(sorted(ranks.items(), reverse=True), 1))
    return [
        "Settings come from several places. The first of these that has a value counts:",
        Table(("rank", "source"), rows),
        "`localspec chat --print-config` prints every value and where it comes from, as TOML that can be read back.",
        Heading("Files"),
        "The system's file is `/etc/localspec/config.toml`, the user's `localspec/config.toml` in the folder for"
        " configuration: `$XDG_CONFIG_HOME` or `~/.config` on Linux, `~/Library/Application Support` on macOS."
        " `--config FILE`, or `LOCALSPEC_CONFIG`, is read in place of both.",
        "Keys are long flags without their dashes; `_` is as good as `-`. A file is for all commands: each takes the"
        " keys it knows. A key that no command knows is an error, as is a value of the wrong type or out of bounds."
        " Lists may be arrays. A name of a file may begin with `~`.",
        Code(EXAMPLE, "toml"),
        "`--profile code`, or `LOCALSPEC_PROFILE=code`, adds the settings of `[profile.code]`.",
        '`[keys]` gives actions of the full screen other keys, several with commas between them: `help = "f1,f12"`.'
        " Names are those of [the list of keys](chat.md).",
        Heading("Environment"),
        "`LOCALSPEC_` and the long flag in capitals, with `_` for `-`: `LOCALSPEC_CTX_SIZE=4096`. An empty variable"
        f" counts as none. On is {_words(ON)}, off is {_words(OFF)}. What may be given several times has one value a"
        " line.",
        Heading("Settings that exclude each other"),
        "Of two such settings from different sources the one of the higher rank wins: `-hf` on the command line"
        " silences `model` in a file. Two from the same source are an error, for example `-m` and `-hf`, `-sys` and"
        " `-sysf`, `-lm` and `--mlock`, `--json` and `--jsonl`.",
    ]


def _words(words: Sequence[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def exit_codes() -> list[Block]:
    rows = tuple((str(code.value), f"`{code.name}`", MEANINGS[code]) for code in ExitCode)
    return [
        "Stdout holds the model's text or JSON and nothing else. A failure is one line on stderr: what went wrong, why,"
        " and what to do. `--debug` shows the traceback instead.",
        Table(("code", "name", "when"), rows),
    ]


def keys() -> list[Block]:
    from localspec.cli.repl.keys import KEYS
    from localspec.talk.commands import COMMANDS as SLASH

    rows = tuple((f"`{f'/{one.name} {one.args}'.strip()}`", one.help) for one in SLASH)
    return [
        "At the prompt of `localspec chat`:",
        Table(("key", "meaning"), KEYS),
        Heading("Commands"),
        Table(("command", "meaning"), rows),
    ]
