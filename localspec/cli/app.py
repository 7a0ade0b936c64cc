"""From the command line to the body of a command. Bodies are imported when they run, never for help or an error."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import FrameType
from typing import NoReturn, cast

from localspec.cli.diagnostics import Ending, note
from localspec.cli.output import Output, accept_any_text
from localspec.errors import ExitCode, UsageError
from localspec.options import COMMANDS, Settings, Values, check_loading, check_values, settle, system_message
from localspec.options.commands import GROUPS, Command
from localspec.options.parse import HELP, Given, parse
from localspec.options.remote import is_remote, without_engine
from localspec.options.suggest import did_you_mean, likely_flag
from localspec.options.tuned import folder

_OF_MODELS = ("ls", "pull", "pair", "info", "path", "rm", "verify", "convert")
#: Command → module and function: ``body(values) -> exit code``. Values are options by name; of commands that load an
#: engine ``system`` is the text, and ``typed`` are the names of options on the command line.
BODIES = {
    "chat": ("localspec.cli.chat", "chat"),
    "complete": ("localspec.cli.complete", "complete"),
    "batch": ("localspec.cli.batch", "batch"),
    "serve": ("localspec.cli.serve", "serve"),
    "bench": ("localspec.cli.bench", "bench"),
    "tune": ("localspec.cli.tune", "tune"),
    "verify": ("localspec.cli.verify", "verify"),
    "doctor": ("localspec.cli.doctor", "doctor"),
    "top": ("localspec.cli.top", "top"),
    **{f"models {name}": ("localspec.cli.models", name) for name in _OF_MODELS},
    **{f"train {name}": ("localspec.cli.train", name) for name in ("eagle3", "draft")},
}
VERSION = ("-V", "--version")
COMPLETION = ("--install-completion", "--show-completion")
#: Characters of a value that --verbose shows.
_LONG = 80
#: Set by the script that asks for the words to offer.
COMPLETION_VARIABLE = "_LOCALSPEC_COMPLETE"


def run(arguments: Sequence[str]) -> int:
    """Runs the command line; returns the exit code where nothing had to be run for it (help).

    Raises:
        Ending: the command is over.
        LocalspecError: the arguments cannot be read, or what the command raised.
    """
    signal.signal(signal.SIGTERM, _terminated)
    accept_any_text()
    first, rest = (arguments[0], arguments[1:]) if arguments else ("", ())
    if COMPLETION_VARIABLE in os.environ or first.partition("=")[0] in COMPLETION:
        from localspec.cli.completion import complete_words

        return complete_words(arguments)
    if first in VERSION:
        from localspec import __version__

        return _print(f"localspec {__version__}\n")
    if first in HELP:
        return _help(())
    if first == "help":
        return _help(["help"] if rest and rest[0] in HELP else rest)
    if first in GROUPS:
        return _run_group(first, rest)
    if first not in COMMANDS:
        raise _no_command(first)
    return _run_command(COMMANDS[first], rest)


def _run_group(group: str, arguments: Sequence[str]) -> int:
    name = arguments[0] if arguments else ""
    if name in HELP:
        return _help((group,))
    command = COMMANDS.get(f"{group} {name}")
    if command is None:
        known = [one.split()[1] for one in COMMANDS if one.startswith(f"{group} ")]
        what = f"no such command: {group} {name}" if name else f"{group} needs to know what to do"
        hint = f"{did_you_mean(name, known)}There are {', '.join(known)}: see localspec {group} --help."
        raise UsageError(what, hint=hint)
    return _run_command(command, arguments[1:])


def _run_command(command: Command, arguments: Sequence[str]) -> int:
    given = parse(arguments, command)
    if given.help:
        return _help((command.name,), short=given.help == HELP[0])
    settings = _tuned(command, _settled(command, given))
    for line in settings.notes:
        note(line)
    if settings.values["print_config"]:
        from localspec.options.printed import as_toml

        return _print(as_toml(command, settings))
    check_values(command.options, settings.values, settings.origins)
    if settings.values["verbose"]:
        _tell(command, settings)
    values: Values = settings.values
    if is_remote(values):
        values = without_engine(command.options, values)
    if "gpu_layers" in values:
        check_loading(values)
        values = {**values, "system": system_message(values), "typed": settings.typed}
    raise Ending(_body(command)(values))


def _settled(command: Command, given: Given) -> Settings:
    """A command that looks into configuration files itself goes on without those that cannot be used."""
    try:
        return settle(command, given, os.environ)
    except UsageError:
        if not command.looks_into_files:
            raise
        return settle(command, given, os.environ, files=False)


def _tuned(command: Command, settings: Settings) -> Settings:
    """With what was tuned for these models, if anything ever was."""
    if not settings.values.get("tuned") or is_remote(settings.values) or not folder().is_dir():
        return settings
    from localspec.cli.tuned import applied

    return applied(command, settings)


def _body(command: Command) -> Callable[[Values], int]:
    module, name = BODIES[command.name]
    with _left_at_once():
        return cast(Callable[[Values], int], getattr(import_module(module), name))


@contextmanager
def _left_at_once() -> Iterator[None]:
    """Signals end an import without an exception: out of numpy's, that would come as an ImportError."""
    codes = {signal.SIGINT: ExitCode.INTERRUPTED, signal.SIGTERM: ExitCode.TERMINATED}
    before = {number: handler for number in codes if (handler := signal.getsignal(number)) is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, lambda got, _frame: os._exit(codes[signal.Signals(got)]))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell(command: Command, settings: Settings) -> None:
    """What differs from the defaults, and where it comes from. Long texts are cut."""
    from localspec.options.printed import shown

    for option in command.options:
        value, origin = settings.values[option.name], settings.origins[option.name]
        if option.flags and value != option.default and option.name != "verbose":
            text = shown(option, value)
            note(f"{option.word} = {text if len(text) <= _LONG else text[:_LONG] + '…'} ({origin})")


def _no_command(first: str) -> UsageError:
    if not first:
        return UsageError("no command is given", hint="Try localspec chat, or see localspec --help.")
    if first.startswith("-"):
        flag = first.partition("=")[0]
        known = {flag for command in COMMANDS.values() for option in command.options for flag in option.flags}
        if flag in known:
            return UsageError(f"{flag} stands before the command", hint=f"Write localspec chat {flag} ….")
        hint = likely_flag(flag, {one: one for one in (*HELP, *VERSION, *COMPLETION)})
        return UsageError(f"no such option: {flag}", hint=f"{hint}See localspec --help.")
    known = {"help", *(name.split()[0] for name in COMMANDS)}
    return UsageError(f"no such command: {first}", hint=f"{did_you_mean(first, known)}See localspec --help.")


def _help(topic: Sequence[str], *, short: bool = False) -> int:
    from localspec.cli.help import help_on

    return _print(help_on(topic, short=short))


def _print(text: str) -> int:
    Output().text(text)
    return ExitCode.OK


def _terminated(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise Ending(ExitCode.TERMINATED)
