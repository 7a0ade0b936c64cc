"""Checkpoints as they lie on the Hugging Face hub: a folder of ``config.json`` and weights.

Weights are safetensors or what torch saves (``.bin``, ``.pt``), in one file or in shards with an index. Of the latter
only weights are read: such a file could hold code too, and then it is refused.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from localspec.errors import ModelLoadError

#: Where weights are, the first that is there; of files with other names, the only one of its kind.
_NAMES = ("model.safetensors", "pytorch_model.bin")
_KINDS = (".safetensors", ".bin", ".pt")
_AGAIN = "Download it again."


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """``config`` is what ``config.json`` says, ``tensors`` the weights by name, in the types they have there."""

    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]


def read_checkpoint(folder: Path) -> Checkpoint:
    """Reads a folder.

    Raises:
        ModelLoadError: something is missing or damaged, or a file holds more than weights.
    """
    config = read_config(folder)
    tensors: dict[str, Tensor] = {}
    for path in _weight_files(folder):
        tensors.update(_weights(path))
    return Checkpoint(config, tensors)


def read_config(folder: Path) -> Mapping[str, Any]:
    """What a folder's ``config.json`` says.

    Raises:
        ModelLoadError: it is missing or damaged.
    """
    return _read_json(folder / "config.json")


def _read_json(path: Path) -> Mapping[str, Any]:
    try:
        found: object = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ModelLoadError(
            f"{path} does not exist", hint="A checkpoint is a folder with config.json and weights."
        ) from None
    except OSError as error:
        raise ModelLoadError(f"{path} cannot be read: {error.strerror}", hint="Check its permissions.") from None
    except (ValueError, RecursionError):
        raise ModelLoadError(f"{path} is damaged: it is not JSON", hint=_AGAIN) from None
    if not isinstance(found, dict):
        raise ModelLoadError(f"{path} is damaged: it holds no object", hint=_AGAIN)
    return found


def _weight_files(folder: Path) -> list[Path]:
    for name in _NAMES:
        if (folder / f"{name}.index.json").exists():
            return _shards(folder, folder / f"{name}.index.json")
        if (folder / name).exists():
            return [folder / name]
    files = sorted(path for path in folder.iterdir() if path.is_file())
    for kind in _KINDS:
        found = [path for path in files if path.suffix == kind]
        if len(found) > 1:
            names = ", ".join(path.name for path in found)
            raise ModelLoadError(
                f"{folder} has no index of its weights: {names}", hint="Get all files of the repository."
            )
        if found:
            return found
    raise ModelLoadError(
        f"{folder} has no weights: no {', '.join(_NAMES)} and no other file of their kinds",
        hint="Get all files of the repository.",
    )


def _shards(folder: Path, index: Path) -> list[Path]:
    places = _read_json(index).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise ModelLoadError(f"{index} is damaged: it has no map of weights", hint=_AGAIN)
    names = sorted(set(places.values()))
    # An index could name any file of this machine.
    if unsafe := [name for name in names if Path(name).name != name]:
        raise ModelLoadError(f"{index} names {unsafe[0]}, which is outside its folder", hint=_AGAIN)
    if missing := [name for name in names if not (folder / name).exists()]:
        raise ModelLoadError(
            f"{folder} lacks {len(missing)} of {len(names)} files of weights: {missing[0]}",
            hint="Get all files of the repository.",
        )
    return [folder / name for name in names]


def _weights(path: Path) -> Mapping[str, Tensor]:
    try:
        found = _safetensors(path) if path.suffix == ".safetensors" else _pickled(path)
    except OSError as error:
        raise ModelLoadError(f"{path} cannot be read: {error.strerror or error}", hint="Check the file.") from None
    if not isinstance(found, Mapping) or not all(isinstance(one, Tensor) for one in found.values()):
        raise ModelLoadError(f"{path} holds other things than weights by their names", hint="Is it a checkpoint?")
    return found


def _safetensors(path: Path) -> Mapping[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        found: Mapping[str, Tensor] = load_file(path)
    except (SafetensorError, ValueError, KeyError) as error:
        raise ModelLoadError(f"{path} is damaged: {_first_line(error)}", hint=_AGAIN) from None
    return found


def _pickled(path: Path) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about versions of the format, which the file's reader did not choose
            return torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception:  # a damaged file fails with almost anything, and torch's advice is to run what it holds
        raise ModelLoadError(
            f"{path} is damaged, or holds more than weights", hint="Download it again, or get one with safetensors."
        ) from None


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__
