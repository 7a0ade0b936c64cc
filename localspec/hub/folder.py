"""A checkpoint as it lies on the hub, for torch: a folder of ``config.json`` and weights.

Weights are safetensors or what torch saves (``.bin``, ``.pt``), in one file or in shards with an index.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from localspec.errors import ModelLoadError

CONFIG = "config.json"
#: Where weights are, the first that is there; of files with other names, the only one of its kind.
_NAMES = ("model.safetensors", "pytorch_model.bin")
_TOKENIZER = frozenset({"tokenizer.json"})
_KINDS = (".safetensors", ".bin", ".pt")
_AGAIN = "Download it again."
_ALL = "Get all files of the repository."


def is_checkpoint(folder: Path) -> bool:
    return (folder / CONFIG).is_file()


def read_config(folder: Path) -> Mapping[str, Any]:
    """What a folder's ``config.json`` says.

    Raises:
        ModelLoadError: it is missing or damaged.
    """
    return _read_json(folder / CONFIG)


def weight_files(folder: Path) -> list[Path]:
    """The files with a folder's weights.

    Raises:
        ModelLoadError: some are missing, or an index is damaged.
    """
    try:
        there = {path.name for path in folder.iterdir() if path.is_file()}
    except OSError as error:
        raise ModelLoadError(f"{folder} cannot be read: {error.strerror}", hint="Check its permissions.") from None
    name = first_of_weights(there)
    if name is None:
        raise ModelLoadError(
            f"{folder} has no weights: no {', '.join(_NAMES)} and no single other file of their kinds", hint=_ALL
        )
    names = shards(folder / name) if name.endswith(".json") else [name]
    if missing := [name for name in names if name not in there]:
        raise ModelLoadError(f"{folder} lacks {len(missing)} of {len(names)} files of weights: {missing[0]}", hint=_ALL)
    return [folder / name for name in names]


def first_of_weights(names: Collection[str]) -> str | None:
    """Of the files of a checkpoint the one with its weights, or the index of them; ``None`` if there is none."""
    for name in _NAMES:
        for file in (f"{name}.index.json", name):
            if file in names:
                return file
    for kind in _KINDS:
        found = [name for name in names if name.endswith(kind) and "/" not in name]
        if len(found) == 1:
            return found[0]
    return None


def files_of(names: Collection[str]) -> tuple[str, ...]:
    """Of the files of a repository those to get for a checkpoint, its config first; () if it is none."""
    weights = first_of_weights(names)
    if CONFIG not in names or weights is None:
        return ()
    stem, _, kind = weights.removesuffix(".index.json").rpartition(".")
    parts = [name for name in names if name.startswith(f"{stem}-") and name.endswith(f".{kind}")]
    return (CONFIG, weights, *(parts if weights.endswith(".json") else ()), *(_TOKENIZER & {*names}))


def shards(index: Path) -> list[str]:
    """The files that an index names.

    Raises:
        ModelLoadError: it is damaged, or leads out of its folder.
    """
    places = _read_json(index).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise ModelLoadError(f"{index} is damaged: it has no map of weights", hint=_AGAIN)
    names = sorted(set(places.values()))
    # An index could name any file of this machine.
    if outside := [name for name in names if Path(name).name != name]:
        raise ModelLoadError(f"{index} names {outside[0]}, which is outside its folder", hint=_AGAIN)
    return names


def _read_json(path: Path) -> Mapping[str, Any]:
    try:
        found: object = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ModelLoadError(
            f"{path} does not exist", hint="A checkpoint is a folder with config.json and weights."
        ) from None
    except NotADirectoryError:
        raise ModelLoadError(
            f"{path.parent} is a file", hint="A checkpoint is a folder with config.json and weights."
        ) from None
    except OSError as error:
        raise ModelLoadError(f"{path} cannot be read: {error.strerror}", hint="Check its permissions.") from None
    except (ValueError, RecursionError):
        raise ModelLoadError(f"{path} is damaged: it is not JSON", hint=_AGAIN) from None
    if not isinstance(found, dict):
        raise ModelLoadError(f"{path} is damaged: it holds no object", hint=_AGAIN)
    return found
