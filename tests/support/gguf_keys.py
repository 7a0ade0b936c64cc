"""A quick reader of a GGUF file's keys: ``gguf.GGUFReader`` takes seconds for a large vocabulary."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from gguf import GGUFValueType

_FORMATS = {
    GGUFValueType.UINT8: "B",
    GGUFValueType.INT8: "b",
    GGUFValueType.UINT16: "H",
    GGUFValueType.INT16: "h",
    GGUFValueType.UINT32: "I",
    GGUFValueType.INT32: "i",
    GGUFValueType.FLOAT32: "f",
    GGUFValueType.BOOL: "?",
    GGUFValueType.UINT64: "Q",
    GGUFValueType.INT64: "q",
    GGUFValueType.FLOAT64: "d",
}


def read_keys(path: Path) -> Iterator[tuple[str, Any, Any, Any]]:
    """Yields (name, value, type, element type or ``None``) for every key of a little-endian file."""
    with path.open("rb") as file:
        magic, _, _, n_keys = struct.unpack("<4sIQQ", file.read(24))
        if magic != b"GGUF":
            raise ValueError(f"{path} is no GGUF file")
        for _ in range(n_keys):
            name = _string(file)
            kind = GGUFValueType(_number(file, "I"))
            if kind == GGUFValueType.ARRAY:
                element = GGUFValueType(_number(file, "I"))
                yield name, _array(file, element, _number(file, "Q")), kind, element
            else:
                yield name, _array(file, kind, 1)[0], kind, None


def _array(file: BinaryIO, kind: Any, length: int) -> list[Any]:
    if kind == GGUFValueType.STRING:
        return [_string(file) for _ in range(length)]
    layout = struct.Struct(f"<{length}{_FORMATS[kind]}")
    return list(layout.unpack(file.read(layout.size)))


def _string(file: BinaryIO) -> str:
    return file.read(_number(file, "Q")).decode()


def _number(file: BinaryIO, code: str) -> int:
    layout = struct.Struct(f"<{code}")
    number: int = layout.unpack(file.read(layout.size))[0]
    return number
