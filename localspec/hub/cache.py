"""The Hugging Face cache on disk, which other programs share.

A repository is a folder: ``blobs/ETAG`` holds content, ``snapshots/COMMIT/NAME`` links to it, ``refs/main`` names the
newest commit. A link is made when its content is complete, so what is there is whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from localspec.hub.ref import is_repo

_PREFIX = "models--"
_VARIABLES = (
    ("LLAMA_CACHE", ""),
    ("HF_HUB_CACHE", ""),
    ("HUGGINGFACE_HUB_CACHE", ""),
    ("HF_HOME", "hub"),
    ("XDG_CACHE_HOME", "huggingface/hub"),
)


def cache_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Where models lie: the first of llama.cpp's variables that is set, else ``~/.cache/huggingface/hub``."""
    environ = os.environ if environ is None else environ
    for variable, below in _VARIABLES:
        if value := environ.get(variable):
            return Path(value).expanduser() / below
    return Path("~/.cache/huggingface/hub").expanduser()


@dataclass(frozen=True, slots=True)
class RepoCache:
    """One repository's folder in the cache; it need not exist."""

    root: Path
    repo: str

    @property
    def folder(self) -> Path:
        return self.root / (_PREFIX + self.repo.replace("/", "--"))

    def blob(self, etag: str) -> Path:
        return self.folder / "blobs" / etag

    def partial(self, etag: str) -> Path:
        """What has arrived of a blob so far."""
        return self.folder / "blobs" / f"{etag}.incomplete"

    def lock(self, etag: str) -> Path:
        """The file that is locked while a blob is downloaded, as huggingface_hub names it."""
        return self.root / ".locks" / self.folder.name / f"{etag}.lock"

    def snapshot(self, commit: str) -> Path:
        return self.folder / "snapshots" / commit

    def snapshots(self) -> tuple[Path, ...]:
        """Folders of commits: that of ``main`` first, then the newest."""
        try:
            folders = [path for path in (self.folder / "snapshots").iterdir() if path.is_dir()]
        except OSError:
            return ()
        main = self._main()
        return tuple(sorted(folders, key=lambda path: (path.name != main, -path.stat().st_mtime)))

    def files(self) -> dict[str, Path]:
        """Name in the repository → link, for every complete file of any commit; the newest commit that has it."""
        found: dict[str, Path] = {}
        for folder in self.snapshots():
            for name in self.names(folder):
                found.setdefault(name, folder / name)
        return found

    def names(self, snapshot: Path) -> list[str]:
        """The complete files of one commit, by name."""
        found = (Path(where, name) for where, _folders, names in os.walk(snapshot) for name in names)
        return sorted(path.relative_to(snapshot).as_posix() for path in found if path.exists())

    def links(self, name: str) -> tuple[Path, ...]:
        """The links of a file in all commits."""
        return tuple(path for folder in self.snapshots() if os.path.lexists(path := folder / name))

    def link(self, etag: str, commit: str, name: str) -> Path:
        """Gives a complete blob its name. Where links are not possible, the blob itself moves there."""
        path, blob = self.snapshot(commit) / name, self.blob(etag)
        if path.exists():
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            path.symlink_to(os.path.relpath(blob, path.parent))
        except FileExistsError:
            if not path.exists():  # a link to nothing: its blob was deleted by hand
                path.unlink()
                return self.link(etag, commit, name)
        except OSError:
            blob.replace(path)
        return path

    def set_main(self, commit: str) -> None:
        """Makes a commit the newest one."""
        path = self.folder / "refs" / "main"
        if self._main() != commit:
            path.parent.mkdir(parents=True, exist_ok=True)
            fresh = path.with_name(f"main.{os.getpid()}")
            fresh.write_text(commit)
            fresh.replace(path)

    def _main(self) -> str | None:
        with suppress(OSError, UnicodeDecodeError):
            return (self.folder / "refs" / "main").read_text().strip()
        return None


def repos(root: Path) -> Iterator[RepoCache]:
    """The repositories of models in the cache, by name."""
    try:
        names = sorted(path.name for path in root.iterdir() if path.name.startswith(_PREFIX))
    except OSError:
        return
    for name in names:
        repo = name.removeprefix(_PREFIX).replace("--", "/")
        if is_repo(repo):
            yield RepoCache(root, repo)


def locate(path: Path, root: Path) -> tuple[RepoCache, str] | None:
    """The repository and the name in it of a link in the cache; ``None`` for any other path."""
    try:
        folder, below, _commit, *name = path.absolute().relative_to(root.absolute()).parts
    except ValueError:
        return None
    repo = folder.removeprefix(_PREFIX).replace("--", "/")
    if below != "snapshots" or not name or not folder.startswith(_PREFIX) or not is_repo(repo):
        return None
    return RepoCache(root, repo), "/".join(name)
