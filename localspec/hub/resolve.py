"""From ``user/repo[:quant]`` to a file: from the hub if it answers, from the cache if not."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from localspec.errors import LocalspecError, ModelError, NetworkError
from localspec.hub.cache import RepoCache, cache_folder
from localspec.hub.download import check_space, download
from localspec.hub.faults import no_such_file
from localspec.hub.folder import CONFIG, files_of, weight_files
from localspec.hub.names import choose, models, parts_of, tag_for
from localspec.hub.ref import HubRef
from localspec.hub.remote import Hub, Listing, Patience
from localspec.hub.watch import Unwatched, Watcher


def resolve(
    ref: HubRef,
    *,
    progress: Watcher | None = None,
    offline: bool = False,
    token: str | None = None,
    patience: Patience | None = None,
) -> Path:
    """The model's (first) file in the cache, or the folder of a checkpoint, downloaded where it is not there yet or the
    hub has a newer one.

    A hub that does not answer is no error as long as the cache has the model; ``progress`` is told.

    Raises:
        UsageError: an endpoint or a token that cannot be one.
        ModelError: no such repository, file or quantisation; or ``offline`` and not in the cache.
        NetworkError: the hub cannot be reached, refuses, or sends something else.
        LocalspecError: the disk is full or the cache cannot be written.
    """
    watcher = progress or Unwatched()
    cache = RepoCache(cache_folder(), ref.repo)
    if offline or is_offline():
        return _offline(cache, ref)
    kept = cached(ref)
    hub = Hub(token, patience or Patience(), watcher)
    try:
        listing = hub.listing(ref.repo, hurry=kept is not None)
    except (ModelError, NetworkError) as error:
        if kept is None:
            raise
        watcher.note(f"{error.message}; using {ref} from the cache")
        return kept
    names = _wanted(ref, listing)
    with _hint_at(kept, ref):
        files = [hub.describe(ref.repo, listing, name) for name in names]
        check_space(cache, files)
        paths = [download(hub, cache, listing.commit, file, watcher) for file in files]
    with suppress(OSError):  # a cache that may only be read is no reason to fail
        cache.set_main(listing.commit)
    return _named(paths[0])


def is_offline(environ: Mapping[str, str] | None = None) -> bool:
    """Whether HF_HUB_OFFLINE forbids the network."""
    environ = os.environ if environ is None else environ
    return environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


def cached(ref: HubRef, root: Path | None = None) -> Path | None:
    """The model's (first) file, or the folder of a checkpoint, if all of it is in the cache."""
    cache = RepoCache(root or cache_folder(), ref.repo)
    for folder in cache.snapshots():
        names = cache.names(folder)
        files = _files(names, ref)
        if files and set(files) <= set(names) and (files[0] != CONFIG or _is_whole(folder)):
            return _named(folder / files[0])
    return None


def _is_whole(folder: Path) -> bool:
    try:
        return bool(weight_files(folder))
    except ModelError:
        return False


def _named(first: Path) -> Path:
    """What a model is named by, whose first file this is."""
    return first.parent if first.name == CONFIG else first


def _files(names: Collection[str], ref: HubRef) -> tuple[str, ...]:
    """All files of what ``ref`` means; () if there is no such thing."""
    name = choose_from(names, ref)
    if name is not None:
        return parts_of(name)
    return files_of(names) if ref.checkpoint and ref.file is None and ref.quant is None else ()


def choose_from(names: Collection[str], ref: HubRef) -> str | None:
    """The file that ``ref`` means among those of its repository."""
    if ref.file is None:
        return choose(names, ref.quant)
    return next((name for name in names if name.casefold() == ref.file.casefold()), None)


def _wanted(ref: HubRef, listing: Listing) -> tuple[str, ...]:
    """All files to have.

    Raises:
        ModelError: there is no such file, or a part of it is missing.
    """
    names = _files(listing.files, ref)
    if not names:
        raise _not_there(ref, list(listing.files), ref.repo)
    if missing := [part for part in names if part not in listing.files]:
        raise ModelError(
            f"{ref.repo} lacks {len(missing)} of {len(names)} parts of {names[0]}", hint="Choose another quantisation."
        )
    return names


def _offline(cache: RepoCache, ref: HubRef) -> Path:
    path = cached(ref)
    if path is not None:
        return path
    names = list(cache.files())
    if models(names):
        error = _not_there(ref, names, f"the cache of {ref.repo} in {cache.root}")
        raise ModelError(error.message, hint=f"{error.hint} Or leave --offline out.")
    raise ModelError(
        f"{ref} is not in the cache {cache.root}, and without the network it cannot be fetched",
        hint="Leave out --offline (or HF_HUB_OFFLINE) once, or see what is there: localspec models ls.",
    )


def _not_there(ref: HubRef, names: list[str], where: str) -> ModelError:
    found = models(names)
    if ref.file is not None:
        return no_such_file(ref.file, where, list(found) or names)
    return no_such_file(f"{ref.quant or 'model'}", where, [tag_for(name, names) for name in found])


@contextmanager
def _hint_at(kept: Path | None, ref: HubRef) -> Iterator[None]:
    """Adds to the errors of a download that an older copy could be used."""
    try:
        yield
    except LocalspecError as error:
        if kept is not None and "--offline" not in error.hint:
            error.hint = f"{error.hint} An older {ref} is in the cache: --offline uses it.".strip()
        raise
