"""Arrays of a GGUF file's metadata, which its header steps over."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from localspec.errors import ModelLoadError
from localspec.hub.header import SCALARS, STRING, Array, Header


@dataclass(frozen=True, slots=True)
class Elements:
    """``kind`` is ggml's number of their type; texts are bytes, as they stand there."""

    kind: int
    values: list[Any]


def elements(header: Header, array: Array) -> Elements:
    """The elements of one of the header's arrays: of texts or numbers.

    Raises:
        ModelLoadError: the file cannot be read any more, or it is an array of arrays.
    """
    try:
        with header.path.open("rb") as file:
            file.seek(array.start - 12)  # type and count
            (kind,) = struct.unpack("<I", file.read(12)[:4])
            data = file.read(array.end - array.start)
    except OSError as error:
        raise ModelLoadError(f"{header.path} cannot be read: {error.strerror}", hint="Check the path.") from None
    if kind == STRING:
        return Elements(kind, _texts(data, array.count))
    if kind not in SCALARS:
        raise ModelLoadError(f"{header.path} has an array of arrays in its metadata", hint="Use another file.")
    return Elements(kind, list(struct.unpack(f"<{array.count}{SCALARS[kind]}", data)))


def _texts(data: bytes, count: int) -> list[bytes]:
    texts, at = [], 0
    for _ in range(count):
        start = at + 8
        at = start + int.from_bytes(data[at:start], "little")
        texts.append(data[start:at])
    return texts
