"""One file from a hub into the cache: resumed where it was cut, checked before it gets its name.

huggingface_hub's own download starts from zero after a cut and compares sizes only; its lock, its names and its layout
are kept, so both can share a cache.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from localspec.errors import LocalspecError, NetworkError
from localspec.hub.cache import RepoCache
from localspec.hub.faults import Damaged, TryLater, disk, full
from localspec.hub.remote import Hub, RemoteFile
from localspec.hub.sizes import human
from localspec.hub.watch import Watcher

if TYPE_CHECKING:
    import httpx2

_PIECE = 1 << 20
#: The hub hands out larger files by another protocol only.
_MOST_BYTES = 50 * 10**9


def checksum(etag: str, size: int | None) -> hashlib._Hash | None:
    """What content must be fed to, for its hex digest to be ``etag``; ``None`` where an etag is no checksum."""
    if re.fullmatch(r"[0-9a-f]{64}", etag):
        return hashlib.sha256()
    if re.fullmatch(r"[0-9a-f]{40}", etag) and size is not None:
        return hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)  # git's
    return None


def download(hub: Hub, cache: RepoCache, commit: str, file: RemoteFile, watcher: Watcher) -> Path:
    """Brings a file into the cache and returns its path there. After any error, ctrl-c included, it is absent, and what
    arrived is kept for the next try.

    Raises:
        LocalspecError: the disk is full or the cache cannot be written.
        ModelError, NetworkError: as `Hub.stream`; or what arrives is not what the hub lists.
    """
    try:
        if (path := cache.snapshot(commit) / file.name).exists():
            return path
        if not cache.blob(file.etag).exists():
            with _locked(cache.lock(file.etag), file.name, watcher):
                if not cache.blob(file.etag).exists():  # else another process was quicker
                    _Download(hub, cache, commit, file, watcher).run()
        return cache.link(file.etag, commit, file.name)
    except OSError as error:
        raise disk(error, cache.root, _size(cache.partial(file.etag))) from error


def check_space(cache: RepoCache, files: Sequence[RemoteFile]) -> None:
    """Sees whether the disk has room for what is still missing of these files.

    Raises:
        LocalspecError: it has not.
    """
    absent = [file for file in files if not cache.blob(file.etag).exists()]
    missing = sum(max((file.size or 0) - _size(cache.partial(file.etag)), 0) for file in absent)
    folder = next((path for path in (cache.folder, *cache.folder.parents) if path.exists()), cache.root)
    free = shutil.disk_usage(folder).free
    if missing > free:
        raise full(f"{absent[0].name} needs {human(missing)} of space, and {cache.root} has {human(free)} free")


@contextmanager
def _locked(path: Path, name: str, watcher: Watcher) -> Iterator[None]:
    """Keeps other processes away from a blob, huggingface_hub's too; says so when it has to wait."""
    from huggingface_hub.utils import WeakFileLock

    path.parent.mkdir(parents=True, exist_ok=True)
    lock = WeakFileLock(path, timeout=0.2)
    try:
        lock.__enter__()
    except TimeoutError:
        watcher.note(f"another process is downloading {name}; waiting for it")
        lock = WeakFileLock(path)
        lock.__enter__()
    try:
        yield
    finally:
        lock.__exit__(None, None, None)


class _Download:
    def __init__(self, hub: Hub, cache: RepoCache, commit: str, file: RemoteFile, watcher: Watcher) -> None:
        self._hub = hub
        self._repo = cache.repo
        self._file = file
        self._url = hub.url(cache.repo, commit, file.name)
        self._partial = cache.partial(file.etag)
        self._blob = cache.blob(file.etag)
        self._watcher = watcher

    def run(self) -> None:
        file = self._file
        if file.size is not None and file.size > _MOST_BYTES:
            raise LocalspecError(
                f"{file.name} is larger than the {human(_MOST_BYTES)} that come in one piece",
                hint=f"Fetch it with: hf download {self._repo} {file.name}; it lands in the same cache.",
            )
        self._partial.parent.mkdir(parents=True, exist_ok=True)
        had = self._usable()
        self._watcher.begin(file.name, file.size, had)
        whole = False
        try:
            self._fetch()
            if not self._matches():
                # An old part may be to blame, once.
                self._watcher.note(f"{file.name} arrived damaged; fetching it once more")
                self._discard()
                self._fetch()
                if not self._matches():
                    self._discard()
                    raise Damaged(
                        f"{file.name} arrived damaged twice: its checksum is not the one the hub lists",
                        hint="Try again on another connection; something between here and the hub may change data.",
                    )
            self._partial.replace(self._blob)
            whole = True
        finally:
            self._watcher.end(whole)

    def _usable(self) -> int:
        """Bytes that an earlier try left; more than the file has are of no use."""
        had = _size(self._partial)
        if self._file.size is not None and had > self._file.size:
            self._partial.unlink()
            return 0
        return had

    def _fetch(self) -> None:
        """Fetches until all is there, from where it is again after each fault."""
        failures = 0
        with self._partial.open("ab") as out:
            while not self._complete(out.tell()):
                before = out.tell()
                try:
                    self._piece(out)
                    if self._file.size is None:
                        break
                    fault = TryLater(
                        f"{self._hub.endpoint} sends only {human(out.tell())} of {self._file.name}",
                        hint="Try again later.",
                    )
                except TryLater as broken:
                    fault = broken
                if self._complete(out.tell()):
                    break
                failures = 1 if out.tell() > before else failures + 1
                self._hub.patience.wait(fault, failures, self._watcher)
            out.flush()
            os.fsync(out.fileno())  # else a crash could leave the name without the content

    def _complete(self, size: int) -> bool:
        return size == self._file.size

    def _piece(self, out: BinaryIO) -> None:
        """One answer of the server, to its end."""
        start = out.tell()
        with self._hub.stream(self._repo, self._url, start) as response:
            if response.status_code == 416 or (start and _first_byte(response) != start):
                # The server has no such range, ignored it, or sends another one.
                self._restart(out)
                start = 0
                if response.status_code != 200:
                    raise TryLater(
                        f"{self._hub.endpoint} cannot send the rest of {self._file.name}", hint="Try again later."
                    )
            self._check_announced(response, start)
            for chunk in response.iter_bytes():
                if self._file.size is not None and out.tell() + len(chunk) > self._file.size:
                    self._restart(out)
                    raise self._wrong_size("more")
                out.write(chunk)
                self._watcher.advance(len(chunk))

    def _restart(self, out: BinaryIO) -> None:
        self._watcher.advance(-out.tell())
        out.seek(0)
        out.truncate()

    def _check_announced(self, response: httpx2.Response, start: int) -> None:
        announced = response.headers.get("Content-Length", "")
        if self._file.size is None or not announced.isdecimal() or "Content-Encoding" in response.headers:
            return
        if start + int(announced) > self._file.size:
            raise self._wrong_size(str(start + int(announced)))
        if response.status_code == 200 and int(announced) != self._file.size:
            raise self._wrong_size(announced)

    def _wrong_size(self, sent: str) -> NetworkError:
        assert self._file.size is not None
        return Damaged(
            f"{self._file.name} has {self._file.size} bytes, but {self._hub.endpoint} sends {sent}",
            hint="A proxy or a sign-in page may be in between: check the connection and HF_ENDPOINT, then try again.",
        )

    def _matches(self) -> bool:
        """Whether what is there has the checksum that the hub lists."""
        self._watcher.check()
        digest = checksum(self._file.etag, self._file.size)
        return digest is None or digest_of(self._partial, digest) == self._file.etag

    def _discard(self) -> None:
        self._watcher.advance(-_size(self._partial))
        self._partial.unlink(missing_ok=True)


def digest_of(path: Path, digest: hashlib._Hash, advance: Callable[[int], None] = lambda count: None) -> str:
    """The checksum of a file as hex digits; ``advance`` is called with the bytes of each piece."""
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
            advance(len(piece))
    return digest.hexdigest()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _first_byte(response: httpx2.Response) -> int | None:
    """Where in the file the answer starts."""
    if response.status_code != 206:
        return 0
    match = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return None if match is None else int(match[1])
