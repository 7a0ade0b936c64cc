"""What one option is: its spellings, its type, its bounds, and how its value is read from a text or from TOML."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from localspec.errors import UsageError
from localspec.options.origin import CLI, Origin

ON = ("true", "1", "on", "enabled", "yes")
OFF = ("false", "0", "off", "disabled", "no")
_KINDS = {bool: "true or false", int: "an integer", float: "a number", str: "a text"}


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    ``flags`` starts with the short ones and ends with the name that help, files and environment use; without flags
    it is an argument by its place. ``aliases`` work too; ``former`` are names of older llama.cpp and of other
    programs, which work with a note. ``negations`` turn a bool off. ``env`` are the environment variables it has
    in llama.cpp. ``least``/``most`` bound numbers, ``choices`` texts; a default of ``None`` means "not given".
    ``many`` may be repeated; ``separator`` is what its text is a list by; ``digits`` is a text that may be a number.
    ``key`` says whether it may stand in a configuration file.
    """

    name: str
    flags: tuple[str, ...]
    kind: type
    default: Any
    help: str
    group: str
    metavar: str = ""
    aliases: tuple[str, ...] = ()
    former: tuple[str, ...] = ()
    negations: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    many: bool = False
    separator: str = ""
    digits: bool = False
    key: bool = True
    secret: bool = False
    required: bool = False

    @property
    def flag(self) -> str:
        """How messages name it."""
        return self.flags[-1] if self.flags else self.metavar

    @property
    def word(self) -> str:
        """Its key in a configuration file."""
        return self.flag.lstrip("-")

    @property
    def is_file(self) -> bool:
        """Its value is a path, or begins with one, or may be one."""
        return self.metavar in ("FILE", "FILE:SCALE", "DIR", "MODEL")

    @property
    def variables(self) -> tuple[str, ...]:
        """Its environment variables; the first that is set counts."""
        if not self.flags:
            return ()
        return (_variable(self.flag), *self.env)

    @property
    def off_variables(self) -> tuple[str, ...]:
        """Environment variables that turn it off, llama.cpp's among them."""
        if not self.negations:
            return ()
        theirs = (name.replace("LLAMA_ARG_", "LLAMA_ARG_NO_") for name in self.env)
        return (_variable(self.negations[-1]), *theirs)

    # -- reading

    def parse(self, text: str, origin: Origin = CLI) -> Any:
        """The value that ``text`` stands for (of one occurrence, where the option may be repeated), checked.

        Raises:
            UsageError: it is none, naming flag, variable or file.
        """
        value = self._parsed(text)
        if value is None:
            raise self._not_of_its_kind(text, origin)
        self.check((value,) if self.many else value, origin)
        return value

    def _parsed(self, text: str) -> Any:
        word = text.strip().lower()
        if self.kind is bool:
            return True if word in ON else False if word in OFF else None
        if self.kind is str:
            return self._choice(text)
        try:
            return self.kind(text)
        except ValueError:
            return None

    def _choice(self, text: str) -> str:
        """on, off and auto have the synonyms that they have in llama.cpp."""
        if "on" in self.choices and text in ON:
            return "on"
        if "off" in self.choices and text in OFF:
            return "off"
        return "auto" if text == "-1" and "auto" in self.choices else text

    def read(self, value: Any, origin: Origin) -> Any:
        """The value that a TOML value stands for, checked.

        Raises:
            UsageError: it has another type or is out of bounds, naming file and key.
        """
        if self.many:
            items = value if isinstance(value, list) else [value]
            return tuple(self._one(item, origin) for item in items)
        if self.separator and isinstance(value, list):
            value = self.separator.join(str(self._one(item, origin)) for item in value)
        return self._one(value, origin)

    def _one(self, value: Any, origin: Origin) -> Any:
        if isinstance(value, bool) and self.kind is str and "on" in self.choices:
            value = "on" if value else "off"
        if self.digits and isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value)
        if isinstance(value, int) and value.bit_length() > 1024:  # no float holds it, and Python may refuse to print it
            value = -math.inf if value < 0 else math.inf
        number = (int, float) if self.kind is float else self.kind
        if not isinstance(value, number) or (isinstance(value, bool) and self.kind is not bool):
            raise self._not_of_its_kind(value, origin)
        value = self.kind(value)
        if self.is_file:  # no shell stands between a file and its reader
            value = os.path.expanduser(value)
        self.check((value,) if self.many else value, origin)
        return value

    def _not_of_its_kind(self, value: Any, origin: Origin) -> UsageError:
        return UsageError(
            f"{origin.cite(self.flag, value)} is not {_KINDS[self.kind]}", hint=f"It takes {self._wanted()}."
        )

    def _wanted(self) -> str:
        return _KINDS[bool] if self.kind is bool else f"{_KINDS[self.kind]}, such as {self._example()}"

    def _example(self) -> str:
        if self.default not in (None, (), ""):
            return str(self.default)
        return {int: "8", float: "0.5"}.get(self.kind, "'abc'")

    # -- bounds

    def check(self, value: Any, origin: Origin = CLI) -> None:
        """Raises `UsageError` naming the setting if ``value`` is out of bounds, text of bytes that are not UTF-8, or an
        empty path, which would stand for the folder one is in."""
        if value is None:
            return
        for one in value if self.many else (value,):
            if self.kind is str and not self.is_file:  # names of files may be any bytes
                self._check_text(one)
            if self.is_file and not one:
                raise UsageError(f"{origin.site(self.flag)} names no file", hint="Give a path.")
            if self.choices and one not in self.choices:
                raise UsageError(
                    f"{origin.cite(self.flag, one)} is not possible", hint=f"Use one of {', '.join(self.choices)}."
                )
            if self.kind in (int, float):
                self._check_number(one, origin)

    def _check_text(self, text: str) -> None:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UsageError(f"the text of {self.flag} is not UTF-8", hint="Convert it first.") from None

    def _check_number(self, number: float, origin: Origin) -> None:
        low = self.least is not None and not number >= self.least
        high = self.most is not None and not number <= self.most
        if not (low or high) and abs(number) < math.inf:  # isfinite fails for integers beyond all floats
            return
        if self.least is None:
            bounds = "a finite number"
        else:
            bounds = f"at least {self.least}" if self.most is None else f"{self.least} to {self.most}"
        raise UsageError(f"{origin.cite(self.flag, number)} is out of range", hint=f"It takes {bounds}.")


def spellings(option: Option) -> Iterator[tuple[str, bool]]:
    """Every spelling of a flag, and whether it turns the option on."""
    for flag in (*option.flags, *option.aliases, *option.former):
        yield flag, True
    for flag in option.negations:
        yield flag, False


def _variable(flag: str) -> str:
    return "LOCALSPEC_" + flag.lstrip("-").replace("-", "_").upper()
