"""Can the draft model guess for the target, and is it likely to pay?"""

from __future__ import annotations

from collections.abc import Iterator

from localspec.plan import TOO_LARGE, TOO_SMALL, USUAL
from localspec.tools.doctor.facts import Header, Model, Pairing, Wanted
from localspec.tools.doctor.findings import Finding, Level

INSTEAD = "leave -md out: --spec-type suffix guesses without a model"
_RELATED = "a draft model of the target's family"


def check(target: Model | None, draft: Model | None, pairing: Pairing | None, wanted: Wanted) -> Iterator[Finding]:
    """Findings of the group ``pair``; none where a model is missing or cannot be read."""
    if target is None or draft is None or target.header is None or draft.header is None:
        return
    if pairing is not None:
        yield _vocabularies(pairing)
        if pairing.fault is not None:
            return
    if target.path is not None and target.path == draft.path:
        yield Finding(
            "pair.size",
            Level.WARNING,
            "target and draft model are one file: guessing costs as much as decoding",
            INSTEAD,
        )
        return
    yield _size(target.header, draft.header)
    yield _family(target.header, draft.header)
    n_ctx = wanted.n_ctx or target.header.context
    if n_ctx and draft.header.context and draft.header.context < n_ctx:
        what = (
            f"the draft model was trained for {draft.header.context} tokens of {n_ctx}: beyond them it does not guess"
        )
        yield Finding("pair.context", Level.NOTE, what, f"-c {draft.header.context}, or a draft model with more")


def _vocabularies(pairing: Pairing) -> Finding:
    if pairing.fault is not None:
        return Finding("pair.vocabulary", Level.PROBLEM, pairing.fault.message, f"{_RELATED}, or {INSTEAD}")
    if pairing.translated:
        what = (
            f"the draft model has another vocabulary: {pairing.translated} tokens are spelt alike, its guesses are"
            " translated, and fewer hold"
        )
        return Finding("pair.vocabulary", Level.NOTE, what, f"{_RELATED}, or {INSTEAD}")
    barred = f"; {pairing.barred} names of control tokens differ and are never guessed" if pairing.barred else ""
    return Finding("pair.vocabulary", Level.OK, f"the vocabularies agree in {pairing.common} tokens{barred}")


def _size(target: Header, draft: Header) -> Finding:
    name, ratio = "pair.size", target.size / max(draft.size, 1)
    rule = f"the rule of thumb is {USUAL[0]} to {USUAL[1]}"
    if ratio <= 1:
        return Finding(
            name,
            Level.WARNING,
            "the draft model is no smaller than the target: guesses cannot pay",
            f"swap -m and -md, or {INSTEAD}",
        )
    said = f"the draft model is {ratio:.1f} times smaller than the target"
    if ratio < TOO_LARGE:
        return Finding(name, Level.WARNING, f"{said}; {rule}: its passes cost much of what guesses save", INSTEAD)
    if ratio < USUAL[0]:
        return Finding(
            name, Level.NOTE, f"{said}; {rule}: fewer guesses pay", "localspec chat measures it: --spec auto"
        )
    if ratio > TOO_SMALL:
        return Finding(
            name,
            Level.NOTE,
            f"{said}; {rule}: so small a model may seldom guess right",
            "a larger draft model, or --spec auto, which stops what does not pay",
        )
    return Finding(name, Level.OK, f"{said}; {rule}")


def _family(target: Header, draft: Header) -> Finding:
    one, other = target.architecture, draft.architecture
    if one == other:
        return Finding("pair.family", Level.OK, f"both are of the architecture {one}")
    what = f"the target is of the architecture {one}, the draft model of {other}: they may seldom say the same"
    return Finding("pair.family", Level.NOTE, what, _RELATED)
