"""A command line to the texts of its options: no types, no limits, no defaults yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from localspec.errors import UsageError
from localspec.options.commands import Command
from localspec.options.foreign import translated
from localspec.options.option import Option, spellings
from localspec.options.suggest import likely_flag

#: The common flags of a command, and all of them.
HELP = ("-h", "--help")


@dataclass(slots=True)
class Given:
    """``texts``: what was given for each option, in order; a flag without a value gives ``true`` or ``false``. ``help``
    is the flag that asked for it."""

    texts: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    help: str = ""


def parse(arguments: Sequence[str], command: Command) -> Given:
    """Reads what follows the name of a command.

    A flag that takes a value takes what follows "=", or the next word, whatever it looks like; only where a number or
    one of some words is due and a flag follows, its value was forgotten. After "--" nothing is a flag. Spellings of
    older llama.cpp and of other programs work, with a note that names today's flag.

    Raises:
        UsageError: an unknown flag, a value too few or too many, a flag where a number should be.
    """
    return _Parser(command).run(arguments)


class _Parser:
    def __init__(self, command: Command) -> None:
        self._command = command
        self._flags = {flag: (option, on) for option in command.options for flag, on in spellings(option)}
        self._given = Given()
        self._spelled: dict[str, tuple[str, str]] = {}
        self._places: list[str] = []

    def run(self, arguments: Sequence[str]) -> Given:
        words = iter(arguments)
        for word in words:
            if word == "--":
                self._places += words
            elif len(word) < 2 or not word.startswith("-"):
                self._places.append(word)
            elif word in HELP:
                self._given.help = word
                return self._given
            else:
                flag, equals, value = word.partition("=")
                option, on = self._option(flag)
                if option.kind is bool:
                    if equals:
                        raise UsageError(f"{flag} takes no value", hint=f"Leave {equals}{value} out.")
                    value = "true" if on else "false"
                elif not equals:
                    value = self._next(option, flag, words)
                self._take(option, flag, value)
        self._take_places()
        return self._given

    def _option(self, flag: str) -> tuple[Option, bool]:
        if flag not in self._flags:
            known = {flag: option.flag if flag in option.former else flag for flag, (option, _) in self._flags.items()}
            hint = likely_flag(flag, {**known, "--help": "--help"})
            raise UsageError(f"no such option: {flag}", hint=f"{hint}See localspec {self._command.name} --help.")
        return self._flags[flag]

    def _next(self, option: Option, flag: str, words: Iterator[str]) -> str:
        value = next(words, None)
        hint = f"See localspec {self._command.name} --help."
        if value is None:
            raise UsageError(f"{flag} requires an argument", hint=hint)
        free = option.kind is str and not option.choices  # a text or a path may look like anything
        if not free and (value in self._flags or value in HELP):
            raise UsageError(f"{flag} takes a value, and {value} is a flag", hint=hint)
        return value

    def _take(self, option: Option, flag: str, value: str) -> None:
        if flag in option.former:
            value = self._modern(option, flag, value)
        self._check_alike(option, flag, value)
        self._given.texts.setdefault(option.name, []).append(value)

    def _modern(self, option: Option, flag: str, value: str) -> str:
        here: str = translated(flag, value)
        told = f"is called {option.flag}" if here == value else f"{value} is {option.flag} {here}"
        self._given.notes.append(f"{flag} {told} here")
        return here

    def _check_alike(self, option: Option, flag: str, value: str) -> None:
        """A name of another program beside another name: who wrote both may not know that they are one."""
        before, said = self._spelled.setdefault(option.name, (flag, value))
        if before != flag and said != value and not {before, flag}.isdisjoint(option.former):
            ours = next((one for one in (before, flag) if one not in option.former), option.flag)
            raise UsageError(f"{before} and {flag} are one option here", hint=f"Use {ours} alone.")

    def _take_places(self) -> None:
        wanted = self._command.arguments
        if len(self._places) > len(wanted):
            extra = self._places[len(wanted)]
            hint = "Quote a text that has spaces, and put its flag before it."
            raise UsageError(f"{extra!r} belongs to no flag", hint=f"{hint} See localspec {self._command.name} --help.")
        for option, value in zip(wanted, self._places, strict=False):
            self._given.texts[option.name] = [value]
        for option in wanted[len(self._places) :]:
            if option.required:
                raise UsageError(f"{option.metavar} is missing", hint=f"See localspec {self._command.name} --help.")
