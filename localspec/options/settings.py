"""Which value counts: command line, then environment, then files, then the default."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from localspec.options.commands import Command, all_options
from localspec.options.config import layers
from localspec.options.option import Option
from localspec.options.origin import CLI, DEFAULT, Level, Origin
from localspec.options.parse import Given
from localspec.options.rules import EXCLUSIVE, ignored
from localspec.options.suggest import closest

PREFIX = "LOCALSPEC_"


@dataclass(frozen=True, slots=True)
class Settings:
    """A value for every option of a command, and where each comes from. ``notes`` are lines for the user."""

    values: dict[str, Any]
    origins: dict[str, Origin]
    notes: tuple[str, ...] = ()

    @property
    def typed(self) -> frozenset[str]:
        """Options that were given on the command line: nothing that comes later by itself overrides them."""
        return frozenset(name for name, origin in self.origins.items() if origin.level is Level.CLI)


def settle(command: Command, given: Given, environment: Mapping[str, str], *, files: bool = True) -> Settings:
    """Puts the sources on top of each other; those of ``files`` may be left out.

    Of options that exclude each other, one of a higher source silences those of a lower one: ``-hf`` on the command
    line is not refused because a file says ``model``. Two of the same source are left for `check_values`.

    Raises:
        UsageError: a value that cannot be read or is out of bounds, an unknown sampler, or a file that cannot be used.
    """
    options = {option.name: option for option in command.options}
    by_hand = {name: (_typed(options[name], texts, CLI), CLI) for name, texts in given.texts.items()}
    outside = dict(_from_environment(command.options, environment))
    where = {name: source[name][0] for source in (outside, by_hand) for name in ("config", "profile") if name in source}
    read = layers(_all(command), where.get("config"), where.get("profile")) if files else ()
    values: dict[str, Any] = {name: option.default for name, option in options.items()}
    origins = dict.fromkeys(options, DEFAULT)
    for layer in (*(one.values for one in read), outside, by_hand):
        for name, (value, origin) in layer.items():
            if name in options:  # a file is for all commands
                values[name], origins[name] = value, origin
    _silence(options, values, origins)
    _follow(options, values, origins)
    return Settings(values, origins, (*given.notes, *_typos(environment), *ignored(command.options, values)))


def _all(command: Command) -> tuple[Option, ...]:
    """This command's options, and those of others, which a file may hold too."""
    own = {option.name for option in command.options}
    return (*(o for o in command.options if o.flags), *(o for o in all_options() if o.name not in own))


def _typed(option: Option, texts: list[str], origin: Origin) -> Any:
    if option.many:
        return tuple(option.parse(text, origin) for text in texts)
    return [option.parse(text, origin) for text in texts][-1]


def _from_environment(
    options: Iterable[Option], environment: Mapping[str, str]
) -> Iterable[tuple[str, tuple[Any, Origin]]]:
    """An empty variable counts as none; options that may be repeated have a value on each line."""
    for option in options:
        names = [(name, True) for name in option.variables] + [(name, False) for name in option.off_variables]
        name, on = next(((name, on) for name, on in names if environment.get(name)), ("", True))
        if name:
            text, origin = environment[name], Origin(Level.ENV, name)
            value = _typed(option, text.splitlines() if option.many else [text], origin)
            yield option.name, (value if on else not value, origin)


def _silence(options: Mapping[str, Option], values: dict[str, Any], origins: dict[str, Origin]) -> None:
    def rank(side: tuple[str, ...]) -> Level:
        given = (origins[name].level for name in side if name in options and values[name] != options[name].default)
        return max(given, default=Level.DEFAULT)

    for one, other in EXCLUSIVE:
        ranks = rank(one), rank(other)
        if ranks[0] == ranks[1] or Level.DEFAULT in ranks:
            continue
        for name in one if ranks[0] < ranks[1] else other:
            if name in options:
                values[name], origins[name] = options[name].default, DEFAULT


def _follow(options: Mapping[str, Option], values: dict[str, Any], origins: dict[str, Origin]) -> None:
    """A system message makes a conversation of a prompt."""
    if "conversation" not in options or values["conversation"]:
        return
    for name in ("system", "system_file"):
        if values.get(name) is not None:
            implied = Origin(Level.CLI, options[name].flags[0])
            values["conversation"] = True
            origins["conversation"] = implied if origins[name].level is Level.CLI else origins[name]


def _typos(environment: Mapping[str, str]) -> Iterable[str]:
    """Variables of ours that are much like an option's and are none."""
    known = {name for option in all_options() for name in (*option.variables, *option.off_variables)}
    words = {name.removeprefix(PREFIX) for name in known if name.startswith(PREFIX)}
    for name in environment:
        if name.startswith(PREFIX) and name not in known:
            meant = closest(name.removeprefix(PREFIX), words, alike=0.7)
            if meant is not None:
                yield f"{name} sets no option; did you mean {PREFIX}{meant}?"
