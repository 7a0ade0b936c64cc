"""Whether a model's files are what they should be."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from localspec.errors import ModelError
from localspec.hub.download import checksum, digest_of
from localspec.hub.header import Header, read_header, structure_fault
from localspec.hub.names import Split
from localspec.hub.shelf import parts

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
        if (fault := structure_fault(header, _block) or _split_fault(header)) is not None:
            raise _damaged(part, fault)
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
            raise _damaged(part, "its checksum is not the one the hub listed")
        yield part, "its structure is sound and its checksum is the hub's"


def _damaged(path: Path, fault: str) -> ModelError:
    return ModelError(f"{path} is damaged: {fault}", hint="Remove it and download it again.")


def _block(kind: int) -> tuple[int, int] | None:
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    try:
        elements, size = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
    except (KeyError, ValueError):
        return None
    return int(elements), int(size)


def _split_fault(header: Header) -> str | None:
    """What is wrong with a part's place in its set; its header counts from 0."""
    split, count = Split.of(header.path.name), header.number("split.count")
    if split is None:
        return f"it is one of {count} parts, but its name does not say so" if (count or 1) > 1 else None
    if count is not None and (count, header.number("split.no")) != (split.count, split.index - 1):
        return f"its name is that of another part than its header ({header.number('split.no')} of {count})"
    return None
