"""What may have been meant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def closest(word: str, known: Iterable[str], *, alike: float = 0.6) -> str | None:
    """The known word that is most like ``word``, if one is ``alike`` (0…1) enough."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, sorted(set(known)), n=1, cutoff=alike)), None)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A question, or nothing."""
    best = closest(word, known)
    return f"Did you mean {best}? " if best else ""


def likely_flag(word: str, known: Mapping[str, str]) -> str:
    """A question, or nothing. ``known`` are all spellings, each with the one to name."""
    bare = {flag.lstrip("-"): named for flag, named in known.items()}  # dashes make any two flags alike
    best = closest(word.lstrip("-"), bare, alike=0.7)
    return f"Did you mean {bare[best]}? " if best else ""
