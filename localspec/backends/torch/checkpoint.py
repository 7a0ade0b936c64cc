"""Reading checkpoints as they lie on the hub (`localspec.hub.folder`).

Of what torch saves only weights are read: such a file could hold code too, and then it is refused.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from localspec.errors import ModelLoadError
from localspec.hub.folder import read_config, weight_files

_AGAIN = "Download it again."


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """``config`` is what ``config.json`` says, ``tensors`` the weights by name, in the types they have there."""

    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]


def read_checkpoint(folder: Path, wants: Callable[[str], bool] = lambda name: True) -> Checkpoint:
    """Reads a folder. Weights that ``wants`` does not name are left where they are: heads may lie beside the model that
    they were trained with.

    Raises:
        ModelLoadError: something is missing or damaged, or a file holds more than weights.
    """
    config = read_config(folder)
    tensors: dict[str, Tensor] = {}
    for path in weight_files(folder):
        tensors.update((name, one) for name, one in _weights(path, wants).items() if wants(name))
    return Checkpoint(config, tensors)


def _weights(path: Path, wants: Callable[[str], bool]) -> Mapping[str, Tensor]:
    try:
        found = _safetensors(path, wants) if path.suffix == ".safetensors" else _pickled(path)
    except OSError as error:
        raise ModelLoadError(f"{path} cannot be read: {error.strerror or error}", hint="Check the file.") from None
    if not isinstance(found, Mapping) or not all(isinstance(one, Tensor) for one in found.values()):
        raise ModelLoadError(f"{path} holds other things than weights by their names", hint="Is it a checkpoint?")
    return found


def _safetensors(path: Path, wants: Callable[[str], bool]) -> Mapping[str, Tensor]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            return {name: file.get_tensor(name) for name in file.keys() if wants(name)}  # noqa: SIM118
    except (SafetensorError, ValueError, KeyError) as error:
        raise ModelLoadError(f"{path} is damaged: {_first_line(error)}", hint=_AGAIN) from None


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
