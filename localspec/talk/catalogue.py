"""The models that can be picked as target or draft model, with what their headers say; found one after the other."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from localspec.backends.memory import CacheShape
from localspec.errors import LocalspecError
from localspec.hub.header import Header, read_header
from localspec.hub.names import models
from localspec.hub.shelf import facts_in, named, parts
from localspec.hub.sizes import human
from localspec.hub.vocabulary import Vocabulary

#: Folders below a folder are looked into so deep.
_DEPTH = 8
#: Keys of layers whose state cannot be taken back.
_RECURRENT = ("{arch}.ssm.state_size", "{arch}.wkv.head_size")


@dataclass(frozen=True, slots=True)
class Model:
    """One model. ``name`` is what to type for it, ``size`` counts the bytes of all parts. What a header does not say is
    ``None``; ``fault`` says why the file is none."""

    name: str
    path: Path
    size: int
    quant: str | None = None
    parameters: int | None = None
    architecture: str | None = None
    context: int | None = None
    cache: CacheShape | None = None
    vocabulary: Vocabulary | None = None
    recurrent: bool = False
    chats: bool = False
    fault: str | None = None

    @property
    def facts(self) -> str:
        """``135M · Q4_1 · 92 MB``"""
        parameters = None if self.parameters is None else _count(self.parameters)
        return " · ".join(part for part in (parameters, self.quant, human(self.size)) if part)


def _count(number: int) -> str:
    return f"{number / 1e6:.0f}M" if number < 999.5e6 else f"{number / 1e9:.1f}B"


#: Path, bytes and the moment of the last change, of every part: what is the same has the same header.
_Stamp = tuple[tuple[str, int, int], ...]


class Catalogue:
    """Finds models, and remembers what it read of files that are as they were.

    Args:
        folders: looked through with all below them; those that are not there count as empty.
        recent: models that were used lately, the last one first; they come first.
        beside: files whose folders are looked into, but not below: those of the models in use.
    """

    def __init__(self, folders: Sequence[Path] = (), recent: Sequence[Path] = (), beside: Sequence[Path] = ()) -> None:
        self._folders = tuple(folders)
        self._recent = tuple(recent)
        self._beside = tuple(beside)
        self._read: dict[_Stamp, Model] = {}

    def scan(self) -> Iterator[Model]:
        """Every model once: the recent ones, the demo model, the cache, what lies beside those in use, the folders."""
        names = {os.path.realpath(path): name for name, path in named()}
        seen: set[str] = set()
        for path in self._paths():
            real = os.path.realpath(path)
            if real not in seen:
                seen.add(real)
                if (model := self.model(path, names.get(real, str(path)))) is not None:
                    yield model

    def model(self, path: Path, name: str | None = None) -> Model | None:
        """The model whose (first) file this is; ``None`` where a part of it is missing or is no file."""
        try:
            stamp = _stamp(path)
        except (OSError, ValueError):
            return None
        if stamp not in self._read:
            self._read[stamp] = _model(path, sum(size for _, size, _ in stamp))
        return replace(self._read[stamp], name=name or str(path))

    def _paths(self) -> Iterator[Path]:
        yield from self._recent
        yield from (path for _, path in named())
        for file in self._beside:
            yield from _below(file.parent, depth=0)
        for folder in self._folders:
            yield from _below(folder)


def _below(folder: Path, depth: int = _DEPTH) -> Iterator[Path]:
    """The (first) files of models in a folder and below it; links to folders are not followed, and what cannot be read
    counts as empty."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except (OSError, ValueError):
        return
    yield from (folder / name for name in models(entry.name for entry in entries))
    for entry in entries:
        with suppress(OSError):
            if depth and entry.is_dir(follow_symlinks=False):
                yield from _below(folder / entry.name, depth - 1)


def _stamp(path: Path) -> _Stamp:
    """Raises `OSError` if a part is not there, or is no plain file: a pipe would never end."""
    found = []
    for part in parts(path):
        if not part.is_file():
            raise FileNotFoundError(part)
        about = part.stat()
        found.append((str(part), about.st_size, about.st_mtime_ns))
    return tuple(found)


def _model(path: Path, size: int) -> Model:
    name = str(path)
    try:
        headers = [read_header(part) for part in parts(path)]
        found, first = facts_in(path, headers), headers[0]
        return Model(
            name,
            path,
            size,
            quant=found["quant"],
            parameters=found["parameters"],
            architecture=found["architecture"],
            context=found["context"],
            cache=CacheShape.in_header(first),
            vocabulary=Vocabulary.of(first),
            recurrent=_is_recurrent(first),
            chats=found["template"],
            fault=found["fault"],
        )
    except LocalspecError as error:
        return Model(name, path, size, fault=error.message)
    except OSError as error:
        return Model(name, path, size, fault=f"it cannot be read: {error.strerror}")


def _is_recurrent(header: Header) -> bool:
    return any(header.number(key) is not None for key in _RECURRENT)
