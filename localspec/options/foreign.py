"""What values of other programs are called here, where more than the flag has another name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from localspec.errors import UsageError
from localspec.options.origin import CLI, Origin

#: SGLang's algorithms, without dashes; its NGRAM keeps counts of what followed.
ALGORITHMS: Mapping[str, str] = {
    "EAGLE": "draft-eagle",
    "EAGLE2": "draft-eagle",
    "EAGLE3": "draft-eagle3",
    "NEXTN": "draft-mtp",
    "DFLASH": "draft-dflash",
    "STANDALONE": "draft-simple",
    "NGRAM": "ngram-cache",
}


def translated(flag: str, value: Any, origin: Origin = CLI) -> Any:
    """The value of the option that ``flag``, a name of another program, is here; as it is under any other name. What
    is no such value stays too, for the option to refuse.

    Args:
        value: a text, or as TOML has it.

    Raises:
        UsageError: an algorithm that is none.
    """
    return _MEANINGS[flag](value, origin) if flag in _MEANINGS else value


def _without_root(value: Any, origin: Origin) -> Any:
    if isinstance(value, str):
        return str(int(value) - 1) if value.isdecimal() and int(value) > 0 else value
    return value - 1 if type(value) is int and value > 0 else value


def _algorithm(value: Any, origin: Origin) -> Any:
    if not isinstance(value, str):
        return value
    name = ALGORITHMS.get(value.strip().replace("-", "").upper())
    if name is None:
        known = ", ".join(one for one in ALGORITHMS if one != "EAGLE2")
        raise UsageError(
            f"{origin.cite('--speculative-algorithm', value)} is not possible", hint=f"Use one of {known}."
        )
    return name


_MEANINGS: Mapping[str, Callable[[Any, Origin], Any]] = {
    "--speculative-algorithm": _algorithm,
    "--speculative-num-draft-tokens": _without_root,  # SGLang counts the token that the tree grows from
}
