"""Presets: named sets of settings, each a TOML file that can be written by hand.

A preset stands for all knobs: what it does not name goes to the default that its help tells. So one preset after
another gives the last one, whatever came before.
"""

from __future__ import annotations

import os
import re
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

from localspec.errors import LocalspecError, UsageError
from localspec.options.option import spellings
from localspec.options.origin import Level, Origin
from localspec.options.printed import toml
from localspec.options.suggest import did_you_mean
from localspec.talk import settings
from localspec.talk.chat import Chat
from localspec.talk.knobs import all_knobs
from localspec.text.printable import one_line

SUFFIX = ".toml"
#: Words of /preset, which no preset can be called.
WORDS = ("save", "delete")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
#: A file of this many bytes is no preset.
_LARGE = 1 << 20


class Presets:
    """The presets of one folder, which is made when it is needed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def names(self) -> tuple[str, ...]:
        """Those that are there, by name; none where the folder cannot be read."""
        with suppress(OSError):
            found = [path.stem for path in self.folder.iterdir() if path.suffix == SUFFIX]
            return tuple(sorted(name for name in found if _NAME.fullmatch(name) and name not in WORDS))
        return ()

    def save(self, chat: Chat, name: str) -> Path:
        """Keeps what differs from the defaults, whole or not at all; one of the same name is replaced.

        Raises:
            UsageError: the name is none, or a value is not UTF-8.
            LocalspecError: the folder cannot be written.
        """
        path = self._path(name)
        differing = [one for one in all_knobs(chat.values) if chat.values[one.name] != one.default]
        lines = [f"{option.word} = {toml(chat.values[option.name])}" for option in differing]
        part = path.with_suffix(f".{os.getpid()}.part")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            part.write_text("".join(f"{line}\n" for line in lines), "utf-8")
            part.replace(path)
        except UnicodeEncodeError:
            raise UsageError(f"{path} would not be UTF-8", hint="Change the value that is not.") from None
        except OSError as error:
            raise LocalspecError(f"{path} cannot be written: {error.strerror}", hint="Check the folder.") from None
        finally:
            with suppress(OSError):
                part.unlink(missing_ok=True)
        return path

    def read(self, chat: Chat, name: str) -> dict[str, Any]:
        """Every knob's value with this preset: option name → value.

        Raises:
            UsageError: there is no such preset, or its file holds what is no setting.
        """
        path = self._there(name)
        options = all_knobs(chat.values)
        known = {flag.removeprefix("--"): (one, on) for one in options for flag, on in spellings(one)}
        values = {option.name: option.default for option in options}
        for key, value in _table(path).items():
            word, origin = key.replace("_", "-"), Origin(Level.USER_FILE, str(path), key)
            if word not in known:
                raise UsageError(
                    f"unknown key {one_line(key):.40} in {path}",
                    hint=f"{did_you_mean(word, known)}Keys of a preset are the settings that /params lists.",
                )
            option, on = known[word]
            read = option.read(value, origin)
            values[option.name] = read if on else not read
        return values

    def load(self, chat: Chat, name: str) -> list[str]:
        """Sets every knob as the preset says; returns what changed: ``temp 0.8 -> 0.2``.

        Raises:
            UsageError: as `read`, or its values do not go together. Then nothing is changed.
        """
        values, before = self.read(chat, name), chat.values
        settings.apply(chat, values)
        return settings.changes_between(before, chat.values, all_knobs(chat.values))

    def delete(self, name: str) -> None:
        """Raises:
        UsageError: there is no such preset.
        LocalspecError: its file cannot be removed.
        """
        path = self._there(name)
        try:
            path.unlink()
        except OSError as error:
            raise LocalspecError(f"{path} cannot be removed: {error.strerror}", hint="Check the folder.") from None

    def _there(self, name: str) -> Path:
        path = self._path(name)
        if not path.is_file():
            known = self.names()
            there = f"There are {', '.join(known)}." if known else "Save one with /preset save NAME."
            raise UsageError(f"there is no preset {name}", hint=f"{did_you_mean(name, known)}{there}")
        return path

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name) or name in WORDS:
            raise UsageError(
                f"{one_line(name) or 'an empty name':.40} is no name for a preset",
                hint=f"Use up to 40 letters, digits, - and _, but not {' or '.join(WORDS)}.",
            )
        return self.folder / f"{name}{SUFFIX}"


def user_presets() -> Presets:
    """The user's own."""
    import platformdirs

    return Presets(platformdirs.user_config_path("localspec") / "presets")


def _table(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _LARGE:
            raise UsageError(f"{path} is too large for a preset", hint="Delete it.")
        return tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint="Check its permissions.") from None
    except (ValueError, RecursionError) as error:  # not UTF-8, or not TOML
        raise UsageError(f"{path} is not TOML: {error}", hint="Mend it, or save it again.") from None
