"""A sign and a colour for each drafter, the same in every view of an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

#: One cell each; with more drafters they begin again.
_SIGNS = "ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐ"
_COLOURS = ("$text-primary", "$text-success", "$text-warning", "$text-accent", "$text-secondary", "$text-error")

NO_MARKS: Mapping[str, str] = MappingProxyType({})


def marks_of(drafters: Sequence[str]) -> dict[str, str]:
    """A sign for each, in the order given."""
    return {name: _SIGNS[i % len(_SIGNS)] for i, name in enumerate(drafters)}


def colours_of(drafters: Sequence[str]) -> dict[str, str]:
    """A style for each, in the order given: a colour of the theme."""
    return {name: _COLOURS[i % len(_COLOURS)] for i, name in enumerate(drafters)}
