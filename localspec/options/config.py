"""Configuration files: where they are, and what is written in them.

TOML; keys are the long flags without their dashes, and ``[profile.NAME]`` tables hold settings for ``--profile NAME``.
``[keys]`` says which key of the full screen does what.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec.errors import UsageError
from localspec.options.foreign import translated
from localspec.options.option import Option, spellings
from localspec.options.origin import Level, Origin
from localspec.options.suggest import did_you_mean

FILE_NAME = "config.toml"
#: The table of keys of the full screen.
KEYS = "keys"


@dataclass(frozen=True, slots=True)
class Layer:
    """Settings of one rank: option name → value and origin."""

    values: Mapping[str, tuple[Any, Origin]]


def system_file() -> Path:
    return Path("/etc/localspec") / FILE_NAME


def user_file() -> Path:
    import platformdirs

    return platformdirs.user_config_path("localspec") / FILE_NAME


def layers(options: tuple[Option, ...], named: str | None, profile: str | None) -> Iterator[Layer]:
    """What the files say, lowest rank first: top level of the system's file, of the user's, then the profile in
    either. ``named`` is read in place of both.

    Raises:
        UsageError: a file that cannot be read, an unknown key, a wrong value or an unknown profile.
    """
    tables = [(path, level, _read(path)) for path, level in files_there(named)]
    keys = _Keys(options)
    for path, level, table in tables:
        top = {key: value for key, value in table.items() if key not in ("profile", KEYS)}
        yield Layer(keys.settings(top, Origin(level, str(path))))
    if profile is None:
        return
    found = [(path, level, table["profile"]) for path, level, table in tables if "profile" in table]
    if not any(profile in profiles for _, _, profiles in found):
        raise _no_profile(
            profile, [str(path) for path, _, _ in tables], {name for _, _, names in found for name in names}
        )
    for path, level, profiles in found:
        settings = profiles.get(profile, {})
        rank = Level.SYSTEM_PROFILE if level is Level.SYSTEM_FILE else Level.USER_PROFILE
        yield Layer(keys.settings(settings, Origin(rank, str(path), profile=profile)))


def keymap(named: str | None) -> dict[str, str]:
    """Action → key, or several with commas between them, from the files that `layers` reads.

    Raises:
        UsageError: a file that cannot be read, or a key that is no text.
    """
    found: dict[str, str] = {}
    for path, _ in files_there(named):
        table = _read(path).get(KEYS, {})
        if not isinstance(table, dict) or not all(isinstance(key, str) and key for key in table.values()):
            raise UsageError(f"[{KEYS}] in {path} is not a table of keys", hint='For example help = "f1,ctrl+h".')
        found |= table
    return found


def files_there(named: str | None) -> list[tuple[Path, Level]]:
    """The files to read, lowest rank first: ``named`` alone, else the usual ones that exist.

    Raises:
        UsageError: the folder of one cannot be looked into.
    """
    if named is not None:
        return [(Path(named), Level.USER_FILE)]
    return [(path, level) for path, level in _usual() if _is_there(path)]


def _usual() -> list[tuple[Path, Level]]:
    return [(system_file(), Level.SYSTEM_FILE), (user_file(), Level.USER_FILE)]


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: OSError) -> UsageError:
    return UsageError(f"{path} cannot be read: {error.strerror}", hint="Mend it, or name another file with --config.")


def _no_profile(profile: str, files: list[str], known: set[str]) -> UsageError:
    if not files:
        return UsageError(
            f"--profile {profile} is given, but there is no configuration file", hint=f"Write {user_file()}."
        )
    names = f"There are: {', '.join(sorted(known))}." if known else "They have no profiles."
    return UsageError(
        f"[profile.{profile}] is not in {' or '.join(files)}", hint=f"{did_you_mean(profile, known)}{names}"
    )


def _read(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        table = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise _unreadable(path, error) from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text (byte {error.start})", hint="Convert it first.") from None
    except (ValueError, RecursionError) as error:  # TOMLDecodeError is one; numbers without end, nests without end
        raise UsageError(f"{path} is not TOML: {error}", hint="See localspec help config.") from None
    profiles = table.get("profile", {})
    if not isinstance(profiles, dict) or not all(isinstance(one, dict) for one in profiles.values()):
        raise UsageError(f"profile in {path} is not a table of tables", hint="Write [profile.NAME] over its keys.")
    return table


class _Keys:
    """What keys mean."""

    def __init__(self, options: tuple[Option, ...]) -> None:
        self._known = {
            flag.removeprefix("--"): (option, on)
            for option in options
            for flag, on in spellings(option)
            if flag.startswith("--") and option.key
        }
        self._only_flags = {option.word: option for option in options if not option.key}

    def settings(self, table: Mapping[str, Any], origin: Origin) -> dict[str, tuple[Any, Origin]]:
        found: dict[str, tuple[Any, Origin]] = {}
        for key, value in table.items():
            here = Origin(origin.level, origin.name, key, origin.profile)
            option, on = self._option(key, here)
            if option.name in found:
                raise UsageError(
                    f"{found[option.name][1].key} and {key} in {here.place} are one option", hint="Leave one out."
                )
            read = option.read(translated(f"--{key.replace('_', '-')}", value, here), here)
            found[option.name] = (read if on else not read, here)
        return found

    def _option(self, key: str, origin: Origin) -> tuple[Option, bool]:
        word = key.replace("_", "-")
        if word in self._known:
            return self._known[word]
        if word in self._only_flags:
            raise UsageError(
                f"{key} is no key of {origin.place}", hint=f"Give {self._only_flags[word].flag} as a flag."
            )
        raise UsageError(
            f"unknown key {key} in {origin.place}",
            hint=f"{did_you_mean(word, self._known)}Keys are long flags without dashes: see localspec help flags.",
        )
