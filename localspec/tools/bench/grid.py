"""Settings by name, and lists that make a grid of them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from localspec.errors import UsageError
from localspec.options import Option, Values, check_values, spec_params
from localspec.options.commands import Command
from localspec.options.parse import parse
from localspec.options.tables.spec import SPEC_OPTIONS
from localspec.tools.local import Setting

_LOADED = ("ngram_size_n", "ngram_size_m", "ngram_min_hits")
#: What may differ between settings: all that a request decides.
OF_A_REQUEST = tuple(option for option in SPEC_OPTIONS if option.name not in _LOADED)
#: Drafters of a setting that guesses nothing; no engine has it beside others.
ALONE = ("none",)
_FLAGS = Command("bench", "", OF_A_REQUEST, ())


def settings(texts: Sequence[str], base: Values, default: tuple[str, ...]) -> tuple[Setting, ...]:
    """The settings that ``--setting NAME=FLAGS`` ask for; without any, the one of ``base``.

    FLAGS count on top of ``base``. A comma list of values, or a flag given several times, makes a grid: one setting for
    each combination. In ``--spec-type`` a comma joins drafters, so there only repetition makes one.

    Args:
        default: the drafters where no ``--spec-type`` is given.

    Raises:
        UsageError: FLAGS that are none, or two settings of one name.
    """
    found = [one for text in texts for one in _grid(text, base, default)] or [_setting("auto", base, default)]
    unique(tuple(one.name for one in found))
    if not texts:
        return (Setting(_name(base, default), found[0].spec),)
    return tuple(found)


def unique(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names as they are.

    Raises:
        UsageError: one is there twice.
    """
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"two settings are named {twice}", hint="Give each --setting and --server a name of its own.")
    return names


def _name(base: Values, default: tuple[str, ...]) -> str:
    return f"{base['spec_type'] or ','.join(default)}, {base['spec']}"


def _grid(text: str, base: Values, default: tuple[str, ...]) -> Iterator[Setting]:
    name, equals, flags = ("", "=", text) if text.startswith("-") else text.partition("=")
    if not equals:
        raise UsageError(
            f"--setting {text} has no flags", hint=f"Write NAME=FLAGS, or '{text}=' for the defaults under this name."
        )
    name = name.strip() or flags.strip()
    try:
        given = parse(shlex.split(flags), _FLAGS).texts
        options = {option.name: option for option in OF_A_REQUEST}
        axes = {key: _values(options[key], words) for key, words in given.items()}
        varied = [key for key, values in axes.items() if len(values) > 1]
        for combination in product(*axes.values()):
            values = {**base, **dict(zip(axes, combination, strict=True))}
            check_values(OF_A_REQUEST, values)
            yield _setting(" ".join([name, *(str(values[key]) for key in varied)]), values, default)
    except UsageError as error:
        raise UsageError(f"--setting {name}: {error.message}", hint=error.hint) from None
    except ValueError as error:  # of shlex
        raise UsageError(f"--setting {text}: {error}", hint="Close every quotation mark.") from None


def _values(option: Option, words: Sequence[str]) -> list[Any]:
    parts = words if option.separator else [part for word in words for part in word.split(",")]
    return [option.parse(part) for part in parts]


def _setting(name: str, values: Values, default: tuple[str, ...]) -> Setting:
    types = values["spec_type"]
    names = default if types is None else tuple(part.strip() for part in types.split(","))
    return Setting(name, replace(spec_params(values), types=names))


def to_load(settings: Sequence[Setting], default: tuple[str, ...]) -> tuple[tuple[str, ...], int]:
    """The drafters that an engine for all of these settings has, and the nodes of its largest tree."""
    asked = [one.spec.types or default for one in settings]
    types = tuple(dict.fromkeys(name for some in asked if some != ALONE for name in some)) or ALONE
    return types, max(one.spec.nodes for one in settings)
