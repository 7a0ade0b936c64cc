"""Trained drafters as GGUF files that llama.cpp loads, and read back to go on from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from localspec.backends.torch import gguf_head
from localspec.backends.torch.eagle_weights import EagleWeights
from localspec.backends.torch.gguf_file import write_gguf
from localspec.backends.torch.llama import ARCHITECTURE
from localspec.backends.torch.sizes import Shape
from localspec.errors import ModelLoadError
from localspec.hub.header import read_header
from localspec.train.llamas import read_llama

_ANEW = "Begin without --from."


def write_head(path: Path, head: EagleWeights, target: Path, outtype: str, about: Mapping[str, str]) -> None:
    """Writes a head for the model ``target``.

    Args:
        outtype: of its matrices, one of `localspec.backends.torch.gguf_file.TYPES`.
        about: further texts of metadata: where the head comes from.

    Raises:
        LocalspecError: it cannot be written.
    """
    gguf_head.write_head(path, head, target, _name("EAGLE-3 head", target), outtype, about)


def write_small(
    path: Path, shape: Shape, weights: Mapping[str, Tensor], target: Path, outtype: str, about: Mapping[str, str]
) -> None:
    """As `write_head`, a draft model with weights as `Small` names them."""
    tensors = {f"{name}.weight": weight for name, weight in weights.items()}
    name = _name("Draft model", target)
    write_gguf(path, ARCHITECTURE, shape, tensors, target, name=name, outtype=outtype, about=about)


def read_head(path: Path) -> EagleWeights:
    """A head that `write_head` wrote.

    Raises:
        ModelLoadError: the file holds something else.
    """
    return gguf_head.read_head(path, _ANEW)


def read_small(path: Path) -> tuple[Shape, dict[str, Tensor]]:
    """The shape and weights of a draft model that `write_small` wrote.

    Raises:
        ModelLoadError: the file holds something else.
    """
    model = read_llama(path)
    weights = {name.removesuffix(".weight"): weight for name, weight in model.weights.items()}
    if "output" in weights:
        raise ModelLoadError(f"{path.name} has a table of scores of its own", hint=_ANEW)
    return model.shape, weights


def _name(what: str, target: Path) -> str:
    header = read_header(target)
    return f"{what} for {header.text('general.name') or header.architecture}"
