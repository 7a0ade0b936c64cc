"""The models that are on this machine, and what their headers say."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from localspec.errors import ModelError, UsageError
from localspec.hub.cache import RepoCache, cache_folder, repos
from localspec.hub.find import find, models_in
from localspec.hub.header import Array, Header, read_header
from localspec.hub.names import models, parts_of, quant_of, tag_for
from localspec.hub.ref import HubRef, is_repo
from localspec.hub.resolve import cached
from localspec.hub.structure import fault_of
from localspec.models.demo import DEMOS

_TRAINING = "localspec.train."


@dataclass(frozen=True, slots=True)
class Entry:
    """One model. ``name`` is what to type for it; ``size`` counts the bytes of all parts; what a header does not say
    is ``None``; ``fault`` says what is wrong with its structure."""

    name: str
    path: Path
    size: int
    quant: str | None
    architecture: str | None = None
    context: int | None = None
    fault: str | None = None

    @classmethod
    def of(cls, name: str, path: Path) -> Entry:
        size = sum(part.stat().st_size for part in parts(path))
        try:
            headers = [read_header(part) for part in parts(path)]
        except ModelError as error:
            return cls(name, path, size, quant_of(path.name), fault=error.message)
        first, context = headers[0], headers[0].number("{arch}.context_length")
        return cls(name, path, size, _quant(path, headers), first.architecture, context, _fault(headers))


def parts(path: Path) -> tuple[Path, ...]:
    """All files of the model whose first file this is."""
    return tuple(path.parent / name for name in parts_of(path.name))


def shelf(folder: Path | None = None) -> Iterator[Entry]:
    """What of `DEMOS` is installed, the cache, then what is below ``folder``. Models with missing parts are left out.

    Raises:
        UsageError: ``folder`` is none.
    """
    for name, path in named():
        yield Entry.of(name, path)
    for path in models_in(folder) if folder is not None else ():
        if all(part.exists() for part in parts(path)):
            yield Entry.of(str(path), path)


def named() -> Iterator[tuple[str, Path]]:
    """The models that have names of their own, with their (first) files: `DEMOS`, then the cache."""
    for name, file in DEMOS.items():
        with suppress(ModelError):
            yield name, file()
    for cache in repos(cache_folder()):
        yield from _in_cache(cache)


def beside(path: Path) -> Iterator[Path]:
    """The models in the folder of a file, which need not exist; each by its (first) file.

    Raises:
        OSError: there is no such folder.
    """
    yield from (path.with_name(name) for name in models(sorted(os.listdir(path.parent))))


def _in_cache(cache: RepoCache) -> Iterator[tuple[str, Path]]:
    files = cache.files()
    for name in models(files):
        if all(part in files for part in parts_of(name)):
            yield f"{cache.repo}:{tag_for(name, files)}", files[name]


def by_name(text: str, *, checkpoint: bool = False) -> Path | None:
    """The (first) file of one of `DEMOS` or of ``user/repo[:quant]`` in the cache; ``None`` for anything else, and for
    what is a path as well. ``checkpoint`` as in `HubRef`.

    Raises:
        ModelError: the demo model is not installed.
    """
    if os.path.exists(text):
        return None
    if (demo := DEMOS.get(text)) is not None:
        return demo()
    with suppress(UsageError):  # it may be the path of a file that is not there
        if (ref := _ref(text)) is not None:
            return cached(replace(ref, checkpoint=checkpoint))
    return None


def _ref(text: str) -> HubRef | None:
    """Raises `UsageError` if what follows the colon is no quantisation."""
    if not is_repo(text.partition(":")[0]) or text.lower().endswith(".gguf"):
        return None
    return HubRef.parse(text, flag="the model")


def located(text: str) -> Path:
    """The (first) file of a model that is here: one of `DEMOS`, a path, or ``user/repo[:quant]`` in the cache.

    Raises:
        ModelError: there is no such model here.
    """
    if (found := by_name(text)) is not None:
        return found
    if (ref := _ref(text)) is not None and not os.path.exists(text):
        raise ModelError(
            f"{ref} is not in the cache {cache_folder()}", hint=f"Get it with: localspec models pull {ref}"
        )
    return find(Path(text))


def facts(path: Path) -> dict[str, Any]:
    """What the headers of a model say, under the names that ``localspec models info`` shows. Sizes in bytes; ``fault``
    says what is wrong with its structure.

    Raises:
        ModelLoadError: a header cannot be read.
    """
    return facts_in(path, [read_header(part) for part in parts(path)])


def facts_in(path: Path, headers: Sequence[Header]) -> dict[str, Any]:
    """The same of headers that were read before: those of all parts, in order."""
    first = headers[0]
    tokens = first.metadata.get("tokenizer.ggml.tokens")
    tensors = [tensor for header in headers for tensor in header.tensors]
    return {
        "name": first.text("general.name"),
        "path": str(path),
        "files": len(headers),
        "size": sum(header.size for header in headers),
        "architecture": first.architecture,
        "parameters": sum(tensor.elements for tensor in tensors),
        "quant": _quant(path, headers),
        "types": {_type_name(kind): count for kind, count in Counter(one.kind for one in tensors).most_common()},
        "layers": first.number("{arch}.block_count"),
        "width": first.number("{arch}.embedding_length"),
        "experts": first.number("{arch}.expert_count"),
        "context": first.number("{arch}.context_length"),
        "window": first.number("{arch}.attention.sliding_window"),
        "vocabulary": tokens.count if isinstance(tokens, Array) else first.number("{arch}.vocab_size"),
        "tokenizer": first.text("tokenizer.ggml.model"),
        "template": first.text("tokenizer.chat_template") is not None,
        "license": first.text("general.license"),
        "training": _training(first),
        "fault": _fault(headers),
    }


def _training(header: Header) -> dict[str, str] | None:
    """What `localspec train` wrote down of how the model came to be."""
    found = (key for key in header.metadata if key.startswith(_TRAINING))
    return {key.removeprefix(_TRAINING): header.text(key) or "" for key in found} or None


def _fault(headers: Sequence[Header]) -> str | None:
    """What is wrong with the structure of the first file that is damaged."""
    return next((fault for header in headers if (fault := fault_of(header)) is not None), None)


def _quant(path: Path, headers: Sequence[Header]) -> str | None:
    """By the name, else by what the header says, else the type of most weights."""
    return quant_of(path.name) or _file_type(headers[0]) or _main_type(headers)


def _main_type(headers: Sequence[Header]) -> str | None:
    weights: Counter[int] = Counter()
    for header in headers:
        for tensor in header.tensors:
            weights[tensor.kind] += tensor.elements
    return _type_name(weights.most_common(1)[0][0]) if weights else None


def _file_type(header: Header) -> str | None:
    from gguf import LlamaFileType

    number = header.number("general.file_type")
    try:
        return None if number is None else LlamaFileType(number).name.removeprefix("MOSTLY_").removeprefix("ALL_")
    except ValueError:
        return None


def _type_name(kind: int) -> str:
    from gguf import GGMLQuantizationType

    try:
        return str(GGMLQuantizationType(kind).name)
    except ValueError:
        return f"type {kind}"
