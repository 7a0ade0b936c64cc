"""What may have been meant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

#: So alike are words that differ by a slip of the hand.
_NEARLY = 0.85
#: Letters that make a beginning.
_BEGINNING = 3


def closest(word: str, known: Iterable[str], *, alike: float = 0.6) -> str | None:
    """The known word that is most like ``word``, if one is ``alike`` (0…1) enough.

    One that is nearly the same comes first, then those that begin with ``word`` or that ``word`` begins with.
    """
    from difflib import get_close_matches

    words = sorted(set(known))
    kin = [one for one in words if min(len(one), len(word)) >= _BEGINNING and _begins(one, word)]
    tries = ((words, _NEARLY), (kin, 0.0), (words, alike))
    return next((best for among, cutoff in tries for best in get_close_matches(word, among, n=1, cutoff=cutoff)), None)


def _begins(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A question, or nothing."""
    best = closest(word, known)
    return f"Did you mean {best}? " if best else ""


def likely_flag(word: str, known: Mapping[str, str]) -> str:
    """A question, or nothing. ``known`` are all spellings, each with the one to name."""
    bare = {flag.lstrip("-"): named for flag, named in known.items()}  # dashes make any two flags alike
    best = closest(word.lstrip("-"), bare, alike=0.7)
    return f"Did you mean {bare[best]}? " if best else ""
