"""Which models can be learnt from, and go on learning: plain llamas."""

from __future__ import annotations

from pathlib import Path

from localspec.backends.torch.gguf_file import read_sizes
from localspec.backends.torch.llama import ARCHITECTURE, TorchLlama


def read_llama(path: Path) -> TorchLlama:
    """That of a file.

    Raises:
        ModelLoadError: another architecture, whose layers a fresh drafter cannot begin with, or it cannot be read.
    """
    read_sizes(path, (ARCHITECTURE,), "Training knows models of that architecture only.")
    return TorchLlama.of_file(path)
