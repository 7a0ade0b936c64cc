"""What a conversation with a server cannot do, and why: one line each."""

from __future__ import annotations

from collections.abc import Iterable

from localspec.errors import UsageError
from localspec.options import GENERATION_OPTIONS, Values
from localspec.options.remote import OF_ENGINES, is_remote
from localspec.options.tables.groups import SPEC
from localspec.types import EngineInfo

#: Not part of a request either: it says what a server does not say of itself, once.
_GIVEN_ONCE = ("ctx_size",)


def of_engines(name: str) -> bool:
    """Whether an option is about how an engine is made."""
    return name in OF_ENGINES or name in _GIVEN_ONCE


def check_here(info: EngineInfo, what: str, why: str) -> None:
    """Raises `UsageError` where a server answers, in place of an engine here."""
    if info.server is not None:
        raise UsageError(f"{what} needs an engine here, and {info.server} answers", hint=why)


def check_changes(values: Values, info: EngineInfo, names: Iterable[str]) -> None:
    """Settings that are about to change.

    Raises:
        UsageError: one of them is not for a server, or not for this one.
    """
    if not is_remote(values):
        return
    options = {one.name: one for one in GENERATION_OPTIONS}
    for name in names:
        if of_engines(name):
            raise UsageError(f"{options[name].word} belongs to the server", hint="Say it where the server is started.")
        if options[name].group == SPEC and not info.drafters:
            raise UsageError(
                f"{options[name].word} is not for {info.server}: it decides alone what it guesses",
                hint="localspec serve lets a request say it.",
            )
