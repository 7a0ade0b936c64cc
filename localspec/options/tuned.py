"""What ``localspec tune`` found best for a pair of models on a machine: written once, read by every later run.

One JSON file a pair. What its key is made of (models, library, machine) is the business of those who ask; a key that
no file has, since one of them changed, has no settings.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from localspec.errors import LocalspecError, UsageError
from localspec.options.option import Option
from localspec.options.origin import TUNED, Level
from localspec.options.settings import Settings
from localspec.options.tables.groups import SPEC

#: Of the form of the files: others are not read.
VERSION = 1
#: What to do about a file that cannot be used.
MEND = "Delete it, or run localspec tune again."
#: Options that are tuned, beside those of guesses.
_TUNED = ("threads", "threads_draft", "gpu_layers", "gpu_layers_draft")


@dataclass(frozen=True, slots=True)
class Tuned:
    """``settings``: keys of a configuration file → values that differ from the defaults; ``about``: how they were
    found, for people."""

    settings: Mapping[str, Any]
    about: Mapping[str, Any]


def folder() -> Path:
    """Where the files are."""
    import platformdirs

    return platformdirs.user_state_path("localspec") / "tuned"


def file_of(*parts: str) -> Path:
    """The file for what ``parts`` say, which need not be there."""
    return folder() / f"{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()[:32]}.json"


def read(file: Path) -> Tuned | None:
    """``None``: there is none.

    Raises:
        UsageError: what is there is no such file.
    """
    try:
        found = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"it cannot be read: {error.strerror}", hint=MEND) from None
    except (ValueError, RecursionError):
        raise UsageError("it is damaged", hint=MEND) from None
    if not isinstance(found, dict) or found.get("version") != VERSION:
        raise UsageError("it is of another version of localspec, or damaged", hint=MEND)
    settings, about = found.get("settings"), found.get("about")
    if not isinstance(settings, dict) or not isinstance(about, dict):
        raise UsageError("it is damaged", hint=MEND)
    return Tuned(settings, about)


def write(file: Path, tuned: Tuned) -> None:
    """Whole or not at all.

    Raises:
        LocalspecError: the folder cannot be written.
    """
    part = file.with_suffix(f".{os.getpid()}.part")
    text = json.dumps({"version": VERSION, "settings": tuned.settings, "about": tuned.about}, indent=1)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            part.write_text(text + "\n", "utf-8")
            part.replace(file)
        finally:
            with suppress(FileNotFoundError):
                part.unlink()
    except OSError as error:
        raise LocalspecError(
            f"{file} cannot be written: {error.strerror}", hint="Set XDG_STATE_HOME to a folder that can be."
        ) from None


def overlaid(options: tuple[Option, ...], settings: Settings, tuned: Tuned) -> Settings:
    """The settings with what was tuned in the place of defaults. What guesses was measured as a whole, so it counts
    only where nobody has said anything about guesses, be it by ``bench --setting``.

    Raises:
        UsageError: it says what is never tuned, or what no option takes.
    """
    by_word = {one.word: one for one in options if one.key and (one.group == SPEC or one.name in _TUNED)}
    chosen = any(
        settings.origins[option.name].level > Level.TUNED
        for option in options
        if (option.group == SPEC or option.name == "setting") and option.name in settings.origins
    )
    values, origins = dict(settings.values), dict(settings.origins)
    for word, value in tuned.settings.items():
        option = by_word.get(word)
        if option is None:
            raise UsageError(f"{word} is nothing that is tuned", hint=MEND)
        if origins[option.name].level is Level.DEFAULT and not (chosen and option.group == SPEC):
            values[option.name], origins[option.name] = option.read(value, TUNED), TUNED
    return replace(settings, values=values, origins=origins)
