"""Which drafters an engine is to have: what ``--spec-type`` and ``-md`` say together, before anything is loaded."""

from __future__ import annotations

from pathlib import Path

from localspec.drafters.files import (
    DRAFT_MODEL,
    EAGLE,
    EAGLE3,
    FROM_FILE,
    HEADS,
    MEDUSA,
    MTP,
    PARD,
    SHARING,
    type_of_file,
    type_of_folder,
)
from localspec.drafters.options import TEXT_TYPES
from localspec.engine_options import EngineOptions
from localspec.errors import ModelLoadError, UsageError
from localspec.hub.folder import read_config
from localspec.hub.header import architecture, read_header

SPEC_TYPES = ("none", *FROM_FILE, MTP, *TEXT_TYPES)


def spec_types(options: EngineOptions) -> tuple[str, ...]:
    """The drafters to load.

    Raises:
        UsageError: an unknown type, an empty one, one beside none, or one that lacks its model.
    """
    draft = None if options.draft is None else draft_type(options.draft.path)
    if options.spec_types is None:
        return ("suffix",) if draft is None else ("suffix", draft)
    if options.draft is None:
        check_types(options.spec_types, has_draft=False)
    else:
        _check_names(options.spec_types)
    types = tuple(dict.fromkeys(name for name in options.spec_types if name != "none"))
    _check_draft(options, types, draft)
    return types


def draft_type(path: Path) -> str:
    """The drafter that a draft file is: by the architecture it names, and what it holds, if it can be read at all.

    Raises:
        UsageError: one of a kind that is not driven here.
    """
    try:
        if path.is_dir():
            return type_of_folder(read_config(path))
        # That of most heads stands near the start; what else a file holds comes behind its vocabulary.
        if HEADS.get(named := architecture(path) or "") == EAGLE3:
            return EAGLE3
        found = type_of_file(read_header(path))
    except ModelLoadError:  # said when it is loaded, with the flag it came by
        return DRAFT_MODEL
    if named in SHARING:
        raise UsageError(
            f"{path.name} guesses from its target's own cache (architecture {named}), which localspec does not drive",
            hint="Use another draft model or head (-md), or n-grams (--spec-type).",
        )
    return found


def check_types(types: tuple[str, ...] | None, *, has_draft: bool) -> None:
    """What can be said of the drafters before a draft file is at hand.

    Raises:
        UsageError: as `spec_types`.
    """
    if types is None:
        return
    _check_names(types)
    lacking = next((name for name in types if name in FROM_FILE), None)
    if lacking is not None and not has_draft:
        what = "a draft model" if lacking == DRAFT_MODEL else "a head"
        where = "Give one with -md. localspec models pair TARGET says what there is."
        raise UsageError(f"--spec-type {lacking} needs {what}", hint=where)
    if has_draft and not {*FROM_FILE, MTP} & {*types}:
        raise UsageError(
            f"a draft model is given, but --spec-type {','.join(types)} does not use it",
            hint="Add its type to --spec-type, or leave -md out.",
        )


def _check_draft(options: EngineOptions, types: tuple[str, ...], draft: str | None) -> None:
    # Without a file for them, layers for multi-token prediction are the target's.
    asked = [name for name in types if name in FROM_FILE or name == MTP == draft]
    given = ",".join(options.spec_types or ())
    # Whether a GGUF file is a parallel model, only its mask token says: when it is loaded.
    if asked == [PARD] and draft == DRAFT_MODEL and options.draft is not None and not options.draft.path.is_dir():
        return
    if options.draft is not None and asked != [draft]:
        what = "a draft model" if draft == DRAFT_MODEL else f"a head for {draft}"
        add = f"Add {draft} to --spec-type"
        place = f"Give {draft} in place of {' and '.join(name for name in asked if name != draft)}"
        raise UsageError(
            f"{options.draft.path.name} is {what}, but --spec-type {given} does not use it"
            if not asked
            else f"{options.draft.path.name} is {what}, not what --spec-type {given} asks for",
            hint=f"{place if asked else add}, or leave -md out.",
        )


def _check_names(names: tuple[str, ...]) -> None:
    hint = f"Known types: {', '.join(SPEC_TYPES)}."
    if "" in names:
        given = ",".join(names)
        raise UsageError(f"a name in --spec-type {given} is empty" if any(names) else "--spec-type is empty", hint=hint)
    for name in names:
        if name not in SPEC_TYPES:
            meant = f"Did you mean draft-{name}? " if f"draft-{name}" in SPEC_TYPES else ""
            raise UsageError(f"--spec-type {name} is not known", hint=meant + hint)
    if len({*names}) > 1 and "none" in names:
        raise UsageError(f"--spec-type {','.join(names)}: none stands alone", hint="Leave none out, or the others.")


def check_texts(options: EngineOptions) -> None:
    """Looks for the corpus and for lookup caches before a model is loaded.

    Raises:
        UsageError: one is not there, or too large, or cannot be what it should.
    """
    texts = options.by_text
    if texts.corpus is not None:
        from localspec.drafters.corpus import corpus_files

        corpus_files(texts.corpus)
    for path in (texts.lookup_static, texts.lookup_dynamic):
        if path is not None:
            from localspec.drafters.ngram_cache import lookup_integers

            lookup_integers(path)


def check_head_options(options: EngineOptions) -> None:
    """Raises `UsageError`: nothing here scores fewer tokens than it knows, or has a tree of such a shape."""
    if options.medusa_tree is not None and MEDUSA not in (options.spec_types or ()):
        raise UsageError("--spec-medusa-tree is for draft-medusa, which is not loaded", hint="Leave it out.")
    draft, flag = options.draft, options.scored.flag
    if flag and (draft is None or not draft.path.is_dir() or not {EAGLE, EAGLE3} & {*(options.spec_types or ())}):
        what = "there is no -md" if draft is None else f"{draft.path.name} is none"
        raise UsageError(
            f"{flag} is for EAGLE heads that run on torch, and {what}: llama.cpp and other heads score all tokens",
            hint="Leave it out.",
        )
