"""Models on hubs, in the shared cache and on disk. Nothing heavy is imported before it is needed."""

from localspec.hub.cache import RepoCache, cache_folder, locate, repos
from localspec.hub.find import find, models_in
from localspec.hub.ref import HubRef, is_repo
from localspec.hub.remote import Patience
from localspec.hub.resolve import cached, resolve
from localspec.hub.watch import Unwatched, Watcher

__all__ = [
    "HubRef",
    "Patience",
    "RepoCache",
    "Unwatched",
    "Watcher",
    "cache_folder",
    "cached",
    "find",
    "is_repo",
    "locate",
    "models_in",
    "repos",
    "resolve",
]
