"""Would this model fit into memory, and can it guess for that target? Told from headers alone, in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from localspec.backends.memory import ROOM, available_bytes
from localspec.hub.sizes import human
from localspec.options import Values
from localspec.plan import TOO_LARGE, TOO_SMALL, USUAL
from localspec.talk.catalogue import Model

#: A shorter context than this is not worth naming.
_SHORTEST = 256

#: Target and draft model (``None``: without one) → the measured speed-up, where ``localspec tune`` found one.
Measured = Callable[[Path, Path | None], float | None]


class Grade(IntEnum):
    """In order: what may be picked with a good conscience comes first."""

    GOOD = 0
    FAIR = 1
    BAD = 2


@dataclass(frozen=True, slots=True)
class Verdict:
    grade: Grade
    text: str


@dataclass(frozen=True, slots=True)
class Judge:
    """Judges models for one chat.

    Args:
        n_ctx: tokens of context asked for; 0 = as many as the target was trained for.
        types: of the target's cache, keys and values; ``types_draft``: of the draft model's.
        free: bytes of memory that may be filled; ``None``: nobody knows.
        measured: speed-ups that were measured; none, if nobody looks for them.
    """

    n_ctx: int = 0
    types: tuple[str, str] = ("f16", "f16")
    types_draft: tuple[str, str] = ("f16", "f16")
    free: int | None = None
    measured: Measured | None = None

    @classmethod
    def of(cls, values: Values, measured: Measured | None = None) -> Judge:
        """For a chat with these options, on this machine as it is now."""
        return cls(
            values["ctx_size"],
            (values["cache_type_k"], values["cache_type_v"]),
            (values["cache_type_k_draft"], values["cache_type_v_draft"]),
            available_bytes(),
            measured,
        )

    def target(self, model: Model) -> Verdict:
        """Whether it can be the target."""
        if model.fault is not None:
            return Verdict(Grade.BAD, f"damaged: {model.fault}")
        fits = self._fits(model, self.n_ctx or model.context or 0, self.types)
        if not model.chats:
            return Verdict(max(fits.grade, Grade.FAIR), f"{fits.text}; no chat template: a base model")
        return fits

    def draft(self, model: Model, target: Model) -> Verdict:
        """Whether it can guess for the target: can the two be paired, is it small enough, does it fit beside it."""
        pairing = paired(model, target)
        if pairing.grade is Grade.BAD:
            return pairing
        n_ctx = self.n_ctx or target.context or 0
        fits = self._fits(model, min(n_ctx, model.context or n_ctx), self.types_draft)
        brought = self.speedup(target, model)
        said = "" if brought is None else f"; measured: {brought:.2f}× plain decoding"
        return Verdict(max(pairing.grade, fits.grade), f"{pairing.text}; {fits.text}{said}")

    def speedup(self, target: Model, draft: Model | None) -> float | None:
        """As it was measured."""
        return None if self.measured is None else self.measured(target.path, None if draft is None else draft.path)

    def _fits(self, model: Model, n_ctx: int, types: tuple[str, str]) -> Verdict:
        if self.free is None:
            return Verdict(Grade.FAIR, "how much memory is free is not known")
        room = int(ROOM * self.free)
        of = f"of {human(self.free)} free"
        if model.size > room:
            return Verdict(Grade.BAD, f"too large: {human(model.size)} {of}")
        if model.cache is None or not n_ctx:
            return Verdict(Grade.GOOD, f"fits: {human(model.size)} {of}, without its cache")
        needs = model.size + model.cache.size(n_ctx, *types)
        if needs <= room:
            return Verdict(Grade.GOOD, f"fits: {human(needs)} {of}")
        most = (room - model.size) // max(model.cache.size(1, *types), 1)
        if most < _SHORTEST:
            return Verdict(Grade.BAD, f"too large: {human(needs)} {of}")
        return Verdict(Grade.FAIR, f"fits with a context up to {most // _SHORTEST * _SHORTEST} (-c)")


def paired(draft: Model, target: Model) -> Verdict:
    """Whether one can guess for the other, and whether that is likely to pay."""
    if draft.fault is not None:
        return Verdict(Grade.BAD, f"damaged: {draft.fault}")
    if draft.recurrent:
        return Verdict(Grade.BAD, "recurrent layers cannot take guesses back: no draft model")
    if draft.size >= target.size:
        return Verdict(Grade.BAD, "no smaller than the target: guesses cannot pay")
    if draft.vocabulary is None or target.vocabulary is None:
        return Verdict(Grade.FAIR, "the vocabularies are not known")
    size = _size(target.size / max(draft.size, 1))
    if draft.vocabulary.same_as(target.vocabulary):
        return Verdict(size.grade, f"same vocabulary, {size.text}")
    what = f"another vocabulary ({draft.vocabulary.count} tokens for {target.vocabulary.count}): fewer guesses hold"
    return Verdict(Grade.FAIR, f"{what}, {size.text}")


def _size(ratio: float) -> Verdict:
    said = f"{ratio:.0f}× smaller" if ratio >= USUAL[0] else f"{ratio:.1f}× smaller"
    if ratio < TOO_LARGE:
        return Verdict(Grade.FAIR, f"{said}: its passes cost much of what guesses save")
    if ratio > TOO_SMALL:
        return Verdict(Grade.FAIR, f"{said}: it may seldom guess right")
    return Verdict(Grade.GOOD, said)
