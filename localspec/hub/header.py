"""The header of a GGUF file: metadata and where its tensors are, without touching a tensor.

llama.cpp's own reader is exact but loads; the gguf package builds an object for each of 100,000 tokens. Here arrays are
stepped over: a large vocabulary takes some 50 ms.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localspec.errors import ModelLoadError

STRING, ARRAY = 8, 9
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_ARCHITECTURE = "general.architecture"
_DAMAGED = "Download it again; localspec models verify checks a file of the cache."


@dataclass(frozen=True, slots=True)
class Array:
    """An array in the metadata that was stepped over: its elements take the bytes from ``start`` to ``end``."""

    count: int
    start: int = field(default=0, compare=False)
    end: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Tensor:
    """``kind`` is ggml's number of its type; ``offset`` counts bytes from the start of the tensor data."""

    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Header:
    """``metadata``: names to numbers, texts, or `Array`. ``data`` is where tensor data starts, ``size`` the file's
    bytes."""

    path: Path
    version: int
    metadata: Mapping[str, Any]
    tensors: tuple[Tensor, ...]
    data: int
    size: int

    @property
    def architecture(self) -> str | None:
        return self.text(_ARCHITECTURE)

    def text(self, key: str) -> str | None:
        value = self.metadata.get(key)
        return value if isinstance(value, str) else None

    def number(self, key: str) -> int | None:
        """An integer of the metadata; ``{arch}`` in the key is the architecture."""
        value = self.metadata.get(key.format(arch=self.architecture))
        return value if isinstance(value, int) else None


def read_header(path: Path) -> Header:
    """Reads a header.

    Raises:
        ModelLoadError: the file is missing, not GGUF, of the other byte order, or damaged in its header.
    """
    with _mapped(path) as buffer:
        reader = _Reader(buffer)
        version, tensors, keys = reader.start(path)
        with _damage_told(path):
            metadata = dict(reader.entries(keys))
            found = tuple(reader.tensor() for _ in range(tensors))
            alignment = metadata.get("general.alignment", 32)
            if not isinstance(alignment, int) or alignment <= 0:
                raise ValueError(f"its alignment is {alignment!r}")
            data = -(-reader.at // alignment) * alignment
        return Header(path, version, metadata, found, data, len(buffer))


def architecture(path: Path) -> str | None:
    """What a file calls its architecture, which stands near its start.

    Raises:
        ModelLoadError: as `read_header`.
    """
    with _mapped(path) as buffer:
        reader = _Reader(buffer)
        _, _, keys = reader.start(path)
        with _damage_told(path):
            found = next((value for key, value in reader.entries(keys) if key == _ARCHITECTURE), None)
    return found if isinstance(found, str) else None


@contextmanager
def _damage_told(path: Path) -> Iterator[None]:
    try:
        yield
    except (struct.error, ValueError, OverflowError, RecursionError) as error:
        reason = "it ends in the middle" if isinstance(error, struct.error) else error
        raise ModelLoadError(f"{path} has a damaged header: {reason}", hint=_DAMAGED) from None


@contextmanager
def _mapped(path: Path) -> Iterator[mmap.mmap | bytes]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if size == 0:
                yield b""
                return
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as buffer:
                yield buffer
    except FileNotFoundError:
        raise ModelLoadError(f"{path} does not exist", hint="Check the path.") from None
    except OSError as error:
        raise ModelLoadError(f"{path} cannot be read: {error.strerror}", hint="Check the path.") from None


class _Reader:
    """Reads on and on from a buffer; ``struct.error`` where it ends."""

    def __init__(self, buffer: mmap.mmap | bytes) -> None:
        self._buffer = buffer
        self.at = 0

    def start(self, path: Path) -> tuple[int, int, int]:
        """Version, number of tensors, number of keys."""
        magic = bytes(self._buffer[:4])
        if magic != b"GGUF":
            raise ModelLoadError(
                f"{path} is not a GGUF file: {_start(magic)}",
                hint="Download it again, or convert the model to GGUF first.",
            )
        self.at = 4
        try:
            version, tensors, keys = self.number("I"), self.number("Q"), self.number("Q")
        except struct.error:
            raise ModelLoadError(f"{path} has a damaged header: it ends in the middle", hint=_DAMAGED) from None
        if version and not version & 0xFFFF:
            raise ModelLoadError(
                f"{path} is a GGUF file of the other byte order (big-endian)",
                hint="Get one for this kind of processor, or convert it.",
            )
        if version not in (2, 3):
            raise ModelLoadError(
                f"{path} is GGUF version {version}; known are 2 and 3", hint="Convert it again, or update localspec."
            )
        # A tensor takes 32 bytes at least, a key 13.
        if tensors * 32 + keys * 13 > len(self._buffer):
            raise ModelLoadError(
                f"{path} has a damaged header: {tensors} tensors and {keys} keys do not fit into it", hint=_DAMAGED
            )
        return version, tensors, keys

    def number(self, code: str) -> int:
        (value,) = struct.unpack_from(f"<{code}", self._buffer, self.at)
        self.at += struct.calcsize(f"<{code}")
        return value  # type: ignore[no-any-return]

    def entries(self, keys: int) -> Iterator[tuple[str, Any]]:
        """The metadata, entry by entry."""
        for _ in range(keys):
            yield self.string(), self.value(self.number("I"))

    def string(self) -> str:
        length = self.number("Q")
        end = self.at + length
        if end > len(self._buffer):
            raise struct.error
        text = bytes(self._buffer[self.at : end]).decode("utf-8", "replace")
        self.at = end
        return text

    def value(self, kind: int) -> Any:
        if kind in SCALARS:
            return self.number(SCALARS[kind])
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            return self._array()
        raise ValueError(f"a value is of the unknown type {kind}")

    def _array(self) -> Array:
        kind, count = self.number("I"), self.number("Q")
        start = self.at
        if kind in SCALARS:
            self.at += count * struct.calcsize(f"<{SCALARS[kind]}")
        elif kind == STRING:
            self._skip_strings(count)
        elif kind == ARRAY:
            for _ in range(count):
                self._array()
        else:
            raise ValueError(f"an array is of the unknown type {kind}")
        if self.at > len(self._buffer):
            raise struct.error
        return Array(count, start, self.at)

    def _skip_strings(self, count: int) -> None:
        at, length_at, buffer = self.at, struct.Struct("<Q").unpack_from, self._buffer
        for _ in range(count):
            at += 8 + length_at(buffer, at)[0]
        self.at = at

    def tensor(self) -> Tensor:
        name = self.string()
        dimensions = self.number("I")
        if not 0 < dimensions <= 8:
            raise ValueError(f"tensor {name[:60]} has {dimensions} dimensions")
        shape = tuple(self.number("Q") for _ in range(dimensions))
        return Tensor(name, shape, self.number("I"), self.number("Q"))


def _start(magic: bytes) -> str:
    """How a file starts, in words."""
    if not magic:
        return "it is empty"
    if all(0x20 <= byte < 0x7F for byte in magic):
        return f'it starts with "{magic.decode()}"'
    return f"it starts with the bytes {magic.hex(' ')}"


def structure_fault(header: Header, size_of: Callable[[int], tuple[int, int] | None]) -> str | None:
    """What is wrong with where the tensors are, ``None`` if nothing.

    Args:
        size_of: ggml's type number → (elements of a block, its bytes); ``None`` for a type that is not known.
    """
    room = header.size - header.data
    alignment = header.number("general.alignment") or 32
    end, before, lost = 0, "", ""
    for tensor in sorted(header.tensors, key=lambda one: one.offset):
        if tensor.offset % alignment:
            return f"tensor {tensor.name} starts at {tensor.offset}, which is no multiple of {alignment}"
        if tensor.offset < end:
            return f"tensors {before} and {tensor.name} overlap"
        block = size_of(tensor.kind)
        if block is None:
            return f"tensor {tensor.name} is of the unknown type {tensor.kind}"
        if tensor.shape[0] % block[0]:
            return f"tensor {tensor.name} has rows of {tensor.shape[0]}, which is no multiple of {block[0]}"
        end, before = tensor.offset + tensor.elements // block[0] * block[1], tensor.name
        lost = lost or (tensor.name if end > room else "")
    if lost:
        return f"{end - room} bytes are missing at its end (tensor {lost} and what follows)"
    names = {tensor.name for tensor in header.tensors}
    return None if len(names) == len(header.tensors) else "two tensors have the same name"
