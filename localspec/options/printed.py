"""Settings as TOML that can be read back."""

from __future__ import annotations

import json
from typing import Any

from localspec.options.commands import Command
from localspec.options.option import Option
from localspec.options.settings import Settings
from localspec.options.tables.groups import grouped


def as_toml(command: Command, settings: Settings) -> str:
    """Every value with its origin as a comment; what is not given, and what is secret, is a comment as a whole."""
    lines = [f"# What localspec {command.name} works with. Command line > environment > files > tuned > default."]
    for group, options in grouped(option for option in command.options if option.key).items():
        lines += ["", f"# {group}", *(_line(option, settings) for option in options)]
    return "\n".join(lines) + "\n"


def _line(option: Option, settings: Settings) -> str:
    value, origin = settings.values[option.name], settings.origins[option.name]
    if value in (None, ()):
        text = f"# {option.word} ="
    else:
        comment = "# " if option.secret or not _can_be_written(value) else ""
        text = f"{comment}{option.word} = {shown(option, value)}"
    return f"{text:<44}  # {_comment(str(origin))}"


def shown(option: Option, value: Any) -> str:
    """A value for people: as TOML where that is possible and it is no secret."""
    if option.secret:
        return "(not shown)"
    return toml(value) if _can_be_written(value) else f"{value!r} (not UTF-8)"


def _can_be_written(value: Any) -> bool:
    try:
        for text in value if isinstance(value, tuple) else (value,):
            str(text).encode()
    except UnicodeEncodeError:
        return False
    return True


def toml(value: Any) -> str:
    """A value as a configuration file has it."""
    if isinstance(value, tuple):
        return f"[{', '.join(toml(one) for one in value)}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _comment(text: str) -> str:
    return "".join(char if char.isprintable() else "�" for char in text)
