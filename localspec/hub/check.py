"""Whether a model's files are what they should be."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from localspec.errors import ModelError
from localspec.hub.download import checksum, digest_of
from localspec.hub.header import read_header
from localspec.hub.shelf import parts
from localspec.hub.structure import fault_of

#: Called with the share of a file that is read, 0…1.
Progress = Callable[[Path, float], object]


def verify(path: Path, progress: Progress = lambda path, share: None) -> Iterator[tuple[Path, str]]:
    """Checks each file of a model; gives the file and how it was checked.

    A file of the cache is compared with the checksum that the hub listed when it was fetched. Only that finds bits
    that rotted inside of tensors.

    Raises:
        ModelError: a file is damaged.
    """
    for part in parts(path):
        header = read_header(part)
        if (fault := fault_of(header)) is not None:
            raise damaged(part, fault)
        etag = Path(os.readlink(part)).name if part.is_symlink() else ""
        size = part.stat().st_size
        digest = checksum(etag, size)
        if digest is None:
            yield part, "its structure is sound; no checksum of it is known"
            continue
        read = 0

        def advance(count: int, part: Path = part, size: int = size) -> None:
            nonlocal read
            read += count
            progress(part, read / size)

        if digest_of(part, digest, advance) != etag:
            raise damaged(part, "its checksum is not the one the hub listed")
        yield part, "its structure is sound and its checksum is the hub's"


def damaged(path: Path, fault: str) -> ModelError:
    """The error for a file that is not what it should be."""
    return ModelError(f"{path} is damaged: {fault}", hint="Remove it and download it again.")
